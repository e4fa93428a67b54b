//! The zygote's jail, entered once, before `site` is imported and anything is preloaded.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, sethostname};

use super::failure::{Failure, InStep, Step};
use super::program::ZygoteJail;
use super::{identity, limits, namespaces, precedence, root, shared_host};
use crate::sys;
use crate::sys::process::{Dumpable, Fork, SingleThreaded};

/// What the zygote keeps of its jail for the workers to come.
pub struct Zygote {
    /// A procfs that shows the zygote and its workers, mounted nowhere: for id maps and sizes.
    pub proc: OwnedFd,
}

/// Puts the calling process into the zygote's jail. Returns in the zygote only: the calling
/// process waits for it, and its init ends it when the supervisor goes.
///
/// `lifeline` is a pipe whose other end only the supervisor holds.
pub fn enter(jail: &ZygoteJail, lifeline: OwnedFd) -> Result<Zygote, Failure> {
    if jail.namespaces.is_none() {
        return shared_host::enter(jail, &lifeline);
    }
    let early_proc = open_proc().in_step(Step::Prepare)?;
    // Root opens the trees before he stops being root: only root may traverse some of them.
    let opened_as_root = match jail.identity.drop_to {
        Some(_) => Some(root::clone_trees(&jail.root).in_step(Step::CloneTrees)?),
        None => None,
    };
    // Before the user namespace, which then belongs to the unprivileged user; root would own it.
    if let Some(ids) = jail.identity.drop_to {
        identity::drop_to(ids).in_step(Step::DropHostIds)?;
        // A changed uid makes /proc/self root's, and the id maps could not be written.
        sys::process::set_dumpable(Dumpable::Yes).in_step(Step::DropHostIds)?;
    }
    let outside = identity::current();
    let single = SingleThreaded::count(early_proc.as_fd()).in_step(Step::Prepare)?;
    namespaces::unshare_zygote().in_step(Step::UnshareZygote)?;
    identity::map(early_proc.as_fd(), outside, jail.identity.inside).in_step(Step::MapIds)?;
    drop(early_proc);
    // Only a child is in the new pid namespace; it becomes the namespace's init.
    if let Fork::Parent(init) = sys::process::fork(&single).in_step(Step::ForkInit)? {
        wait_and_exit(init);
    }
    root::make_private().in_step(Step::PrivateMounts)?;
    // While the host's /proc is still in sight: the kernel grants no new procfs without one.
    let proc = root::detached_proc().in_step(Step::MountProc)?;
    let trees = match opened_as_root {
        Some(trees) => trees,
        None => root::clone_trees(&jail.root).in_step(Step::CloneTrees)?,
    };
    root::build_and_enter(&jail.root, trees, jail.worker.proc)?;
    sethostname(&jail.hostname).in_step(Step::Hostname)?;
    fork_zygote(&single, lifeline)?;
    finish(jail, proc)
}

/// The last steps, in the zygote itself.
pub(super) fn finish(jail: &ZygoteJail, proc: OwnedFd) -> Result<Zygote, Failure> {
    // Each worker costs the zygote two descriptors while it lives, and the number of a worker's
    // data socket is above some shells' soft limit.
    limits::raise_open_files().in_step(Step::Rlimits)?;
    // Before the filter, and before the first worker, which inherits it.
    precedence::give_up().in_step(Step::Precedence)?;
    // Before the filter: only a process with privileges may load one without it.
    nix::sys::prctl::set_no_new_privs().in_step(Step::NoNewPrivs)?;
    // Workers are other processes of the same host user: nothing may reach into the zygote.
    sys::process::set_dumpable(Dumpable::No).in_step(Step::Dumpable)?;
    for filter in &jail.filters {
        sys::seccomp::load(filter).in_step(Step::ZygoteFilter)?;
    }
    Ok(Zygote { proc })
}

pub(super) fn open_proc() -> Result<OwnedFd, Errno> {
    use nix::fcntl::{OFlag, open};
    use nix::sys::stat::Mode;
    open(
        "/proc",
        OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
        Mode::empty(),
    )
}

/// Forks the zygote off the init, which stays behind to watch it and the supervisor.
///
/// A process is forked and reaped first, so that the zygote is not process 2: its workers are,
/// and OpenSSL and `tempfile` tell a fork by the process number. A zygote with its workers' number
/// would share its random state with all of them.
fn fork_zygote(single: &SingleThreaded, lifeline: OwnedFd) -> Result<(), Failure> {
    match sys::process::fork(single).in_step(Step::ForkZygote)? {
        Fork::Child(_) => sys::process::exit_now(0),
        Fork::Parent(spacer) => {
            waitpid(spacer, None).in_step(Step::ForkZygote)?;
        }
    }
    match sys::process::fork(single).in_step(Step::ForkZygote)? {
        Fork::Parent(zygote) => watch_and_exit(zygote, &lifeline),
        Fork::Child(_) => {
            drop(lifeline);
            die_with_parent()
        }
    }
}

/// Beside the lifeline, not instead of it: bound to the parent's thread, and the init has only one.
pub(super) fn die_with_parent() -> Result<(), Failure> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).in_step(Step::WatchSupervisor)
}

/// The init: reaps, and ends with the zygote or with the supervisor. As process 1 it takes its
/// whole pid namespace with it.
fn watch_and_exit(zygote: Pid, lifeline: &OwnedFd) -> ! {
    sys::process::exit_now(watch(zygote, lifeline).unwrap_or_else(watch_failed));
}

/// The exit status of one who cannot watch any more, and ends with all that he watched. He says why on
/// standard error, which is the log that the supervisor quotes: the control socket is the zygote's.
pub(super) fn watch_failed(errno: Errno) -> i32 {
    const EXIT_STATUS: i32 = 70;
    let step = Step::WatchSupervisor;
    let words = format!("the process above it {}\n", Failure { step, errno });
    _ = nix::unistd::write(std::io::stderr(), words.as_bytes());
    EXIT_STATUS
}

fn watch(zygote: Pid, lifeline: &OwnedFd) -> Result<i32, Errno> {
    let mut only_children = SigSet::empty();
    only_children.add(Signal::SIGCHLD);
    // All blocked: the interpreter's handlers must not run here.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
    let signals = SignalFd::new(&only_children)?;
    loop {
        loop {
            match reap(zygote)? {
                Reaped::Zygote(code) => return Ok(code),
                Reaped::Orphan => {}
                Reaped::Nobody => break,
            }
        }
        let mut fds = [
            PollFd::new(lifeline.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
        ];
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => continue,
            other => other?,
        };
        let [supervisor, child] = fds.map(|fd| fd.any().unwrap_or(true));
        if supervisor {
            return Ok(0);
        }
        if child {
            signals.read_signal()?;
        }
    }
}

/// What the init found to reap.
enum Reaped {
    /// The zygote, and the exit status to pass on.
    Zygote(i32),
    /// A process whose parent had gone before it.
    Orphan,
    /// Nothing, for now.
    Nobody,
}

fn reap(zygote: Pid) -> Result<Reaped, Errno> {
    match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
        Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => Ok(Reaped::Nobody),
        Ok(WaitStatus::Exited(pid, code)) if pid == zygote => Ok(Reaped::Zygote(code)),
        Ok(WaitStatus::Signaled(pid, signal, _)) if pid == zygote => {
            Ok(Reaped::Zygote(128 + signal as i32))
        }
        Ok(_) => Ok(Reaped::Orphan),
        Err(errno) => Err(errno),
    }
}

/// The process that the supervisor started: outside the pid namespace, it only passes the status on.
fn wait_and_exit(init: Pid) -> ! {
    loop {
        match waitpid(init, None) {
            Ok(WaitStatus::Exited(_, code)) => sys::process::exit_now(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => sys::process::exit_now(128 + signal as i32),
            Err(Errno::EINTR) | Ok(_) => {}
            Err(errno) => {
                // Nobody else would see its end, and the supervisor takes this process's for it.
                _ = kill(init, Signal::SIGKILL);
                sys::process::exit_now(watch_failed(errno));
            }
        }
    }
}
