//! Enters the zygote's jail, once, before the interpreter imports `site` and preloads modules.

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpid, pipe2, sethostname, setpgid};

use super::control::{Lifetime, PythonSetup};
use super::failure::{Failure, InStep, Step};
use super::owners::{Owners, await_end};
use super::preload::Preload;
use super::program::{Clock, ZygoteJail};
use super::{identity, limits, namespaces, root, scheduling, shared_host};
use crate::sys;
use crate::sys::namespace_init::{InitLifetime, InitStacks};
use crate::sys::process::{Dumpable, Fork, SingleThreaded};

/// The parts of the zygote's jail that later workers need.
pub struct Zygote {
    /// A detached procfs that shows the zygote and its workers. Used for id maps and memory sizes.
    pub proc: OwnedFd,
    /// The zygote's `/proc/self/pagemap`, for `sys::eager_copy`. `None` in a zygote for one run.
    pub pagemap: Option<OwnedFd>,
    /// The mount namespace to return to after preloading. `None` at level `landlock`.
    pub preload: Option<Preload>,
}

impl Zygote {
    /// Returns to the mount namespace that workers start from. Called before the first fork.
    pub fn leave_preload(&mut self) -> Result<(), Failure> {
        let Some(preload) = self.preload.take() else {
            return Ok(());
        };
        preload.leave(self.proc.as_fd()).in_step(Step::LeavePreload)
    }
}

/// Puts the calling process into the zygote's jail.
///
/// Returns in the zygote only. The calling process stays behind and waits for the zygote, and the zygote's init ends
/// the zygote when the supervisor is gone.
///
/// Both descriptors of `supervisor` become readable or hang up once the supervisor has ended. The first is the
/// lifeline, a pipe whose other end the supervisor holds; the second is the supervisor's pidfd. Neither alone is
/// enough: a process forked by the supervisor keeps the pipe open, and a supervisor that calls execve(2) is gone
/// although its process lives.
pub fn enter(
    jail: &ZygoteJail,
    python: &PythonSetup,
    supervisor: [OwnedFd; 2],
) -> Result<Zygote, Failure> {
    let Some(own) = jail.namespaces else {
        return shared_host::enter(jail, python.lifetime, &supervisor);
    };
    // Leave the caller's process group: a signal to that group is meant for the supervisor, which ends its guests
    // first.
    setpgid(Pid::from_raw(0), Pid::from_raw(0)).in_step(Step::Session)?;
    let early_proc = open_proc().in_step(Step::Prepare)?;
    let single = SingleThreaded::count(early_proc.as_fd()).in_step(Step::Prepare)?;
    // Before dropping root: only root may traverse the paths of some trees.
    let opened_as_root = match jail.identity.drop_to {
        Some(guest) => {
            let owners = Owners {
                single: &single,
                proc: early_proc.as_fd(),
                guest,
            };
            Some(root::open_host(&jail.root, Some(&owners)).in_step(Step::CloneTrees)?)
        }
        None => None,
    };
    // While still root: only a child that is root may map more than one id.
    let mapper = match (jail.worker_uids(), jail.identity.drop_to) {
        (Some(workers), Some(zygote)) => {
            let inside = jail.identity.inside;
            let write = |proc: BorrowedFd, process: &str| {
                identity::map_process(proc, process, zygote, inside, Some(workers))
            };
            Some(Mapper::fork(&single, early_proc.as_fd(), write).in_step(Step::MapIds)?)
        }
        _ => None,
    };
    // Before the user namespace, so that the unprivileged user owns it and not root.
    if let Some(ids) = jail.identity.drop_to {
        identity::drop_to(ids).in_step(Step::DropHostIds)?;
        // After a uid change root owns /proc/self, so the process could not write its own id maps.
        sys::process::set_dumpable(Dumpable::Yes).in_step(Step::DropHostIds)?;
    }
    let outside = identity::current();
    namespaces::unshare_zygote().in_step(Step::UnshareZygote)?;
    match mapper {
        Some(mapper) => mapper.map().in_step(Step::MapIds)?,
        None => {
            identity::map(early_proc.as_fd(), outside, jail.identity.inside)
                .in_step(Step::MapIds)?;
        }
    }
    // Only children enter the new pid namespace. From here on this is the zygote.
    fork_zygote(&single, own.clock, early_proc, supervisor)?;
    root::make_private().in_step(Step::PrivateMounts)?;
    // While the host's /proc is still visible: the kernel refuses a new procfs to a mount namespace without one.
    let proc = root::detached_proc().in_step(Step::MountProc)?;
    let host = match opened_as_root {
        Some(opened) => opened,
        None => root::open_host(&jail.root, None).in_step(Step::CloneTrees)?,
    };
    root::build_and_enter(jail, host)?;
    sethostname(&jail.hostname).in_step(Step::Hostname)?;
    // Before the filter, like all mounts that are made once.
    let preload = Preload::enter(&jail.worker, &python.preload, proc.as_fd())?;
    let zygote = finish(jail, python.lifetime, proc)?;
    Ok(Zygote {
        preload: Some(preload),
        ..zygote
    })
}

/// A child that stays root and writes the id maps of its parent's user namespace.
struct Mapper {
    pid: Pid,
    /// Closed by the parent to start the mapping, or to release the child if there will be nothing to map.
    go: Option<OwnedFd>,
}

impl Mapper {
    fn fork(
        single: &SingleThreaded,
        proc: BorrowedFd,
        write: impl FnOnce(BorrowedFd, &str) -> Result<(), Errno>,
    ) -> Result<Self, Errno> {
        let parent = getpid();
        let (wait, go) = pipe2(OFlag::O_CLOEXEC)?;
        match sys::process::fork(single)? {
            Fork::Parent(pid) => Ok(Self { pid, go: Some(go) }),
            Fork::Child(_) => {
                drop(go);
                let written = await_end(&wait).and_then(|()| write(proc, &parent.to_string()));
                sys::process::exit_now(written.map_or_else(|errno| errno as i32, |()| 0))
            }
        }
    }

    /// Lets the child write the maps and reaps it. Its exit status is the errno.
    fn map(mut self) -> Result<(), Errno> {
        match self.end()? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, errno) => Err(Errno::from_raw(errno)),
            _ => Err(Errno::ECHILD),
        }
    }

    fn end(&mut self) -> Result<WaitStatus, Errno> {
        drop(self.go.take());
        reap(self.pid)
    }
}

/// Reaps the child if a step failed before there was anything to map.
impl Drop for Mapper {
    fn drop(&mut self) {
        if self.go.is_some() {
            _ = self.end();
        }
    }
}

/// Runs the last steps, in the zygote itself.
pub(super) fn finish(
    jail: &ZygoteJail,
    lifetime: Lifetime,
    proc: OwnedFd,
) -> Result<Zygote, Failure> {
    // Each live worker costs the zygote four descriptors, and the number of a worker's data socket exceeds the soft
    // limit of some shells.
    limits::raise_open_files().in_step(Step::Rlimits)?;
    // Before the filter, and before the first worker, which inherits the priority.
    scheduling::drop_priority().in_step(Step::DropPriority)?;
    // Before the filter: without no_new_privs only a privileged process may load one.
    nix::sys::prctl::set_no_new_privs().in_step(Step::NoNewPrivs)?;
    // Guests see the zygote's arguments as those of their init, which shares its memory.
    sys::process::hide_arguments(proc.as_fd()).in_step(Step::HideArguments)?;
    // While the process is dumpable: afterwards root owns the files of /proc/self.
    let pagemap = match lifetime {
        Lifetime::ManyRuns => sys::procfs::open(proc.as_fd(), "self/pagemap").ok(),
        Lifetime::OneRun => None,
    };
    // Workers are other processes of the same host user, and none may access the zygote's memory.
    sys::process::set_dumpable(Dumpable::No).in_step(Step::Dumpable)?;
    for filter in &jail.filters {
        sys::seccomp::load(filter).in_step(Step::ZygoteFilter)?;
    }
    Ok(Zygote {
        proc,
        pagemap,
        preload: None,
    })
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

/// Starts the init, which lives as long as the supervisor, then forks the zygote. The calling process stays behind and
/// waits for both.
///
/// First skips one pid, so that the zygote is not process 2. Its workers are process 2 of their namespaces, and OpenSSL
/// and `tempfile` detect a fork by a changed pid. A zygote with the same pid as its workers would share its random
/// state with all of them.
fn fork_zygote(
    single: &SingleThreaded,
    clock: Clock,
    early_proc: OwnedFd,
    supervisor: [OwnedFd; 2],
) -> Result<(), Failure> {
    let mut stacks = InitStacks::reserve(1).in_step(Step::SpawnInit)?;
    let lifetime = InitLifetime::UntilReadable(supervisor.each_ref().map(AsFd::as_fd));
    let init = sys::namespace_init::spawn(&mut stacks, lifetime).in_step(Step::SpawnInit)?;
    let skipped = sys::process::skip_number(single).in_step(Step::ForkZygote);
    let forked = skipped.and_then(|()| {
        // After the init and the skipped pid's process, which both share this process's memory.
        if clock == Clock::Zygote {
            namespaces::unshare_time().in_step(Step::UnshareZygote)?;
            namespaces::start_clocks(early_proc.as_fd()).in_step(Step::StartClocks)?;
        }
        sys::process::fork(single).in_step(Step::ForkZygote)
    });
    match forked {
        Ok(Fork::Parent(zygote)) => {
            // The init has its own copies.
            drop(supervisor);
            let status = || wait(zygote, init.pid).unwrap_or_else(watch_failed);
            sys::memory::wait_without_memory(single, early_proc.as_fd(), status)
        }
        Ok(Fork::Child(_)) => {
            // This procfs shows the host, so it must not stay open in the zygote.
            drop(early_proc);
            die_with_parent()
        }
        Err(failure) => {
            // Do not wait for the init: it may in turn be waiting for a process that this one failed to reap. This
            // process exits now.
            _ = sys::pidfd::signal(init.pidfd.as_fd(), Signal::SIGKILL);
            Err(failure)
        }
    }
}

/// Has the kernel kill this process when its parent ends (`PR_SET_PDEATHSIG`). This backs up the lifeline and does not
/// replace it. The signal is tied to the parent's thread, and the parent has only one.
pub(super) fn die_with_parent() -> Result<(), Failure> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).in_step(Step::WatchSupervisor)
}

/// Returns the exit status of a process that can no longer watch, and therefore exits together with the processes that
/// it watched. Writes the reason to standard error, the log that the supervisor quotes, because the control socket
/// belongs to the zygote.
pub(super) fn watch_failed(failure: Failure) -> i32 {
    const EXIT_STATUS: i32 = 70;
    // The process may have no memory left to allocate from.
    let mut line = [0; 256];
    let mut rest = line.as_mut_slice();
    _ = writeln!(rest, "the process that watches the zygote {failure}");
    let length = 256 - rest.len();
    _ = nix::unistd::write(std::io::stderr(), &line[..length]);
    EXIT_STATUS
}

/// Waits until the zygote or its init has ended, then ends the other. Returns the zygote's exit status.
///
/// Runs in the process that the supervisor started. That process is outside the pid namespace and outlives everything
/// in it.
fn wait(zygote: Pid, init: Pid) -> Result<i32, Failure> {
    let watched = await_child();
    // Even if waiting failed: no other process would see them end, and the supervisor takes this process's end for
    // theirs. Their pids cannot be reused before they are reaped.
    for child in [zygote, init] {
        _ = kill(child, Signal::SIGKILL);
    }
    watched.in_step(Step::WatchSupervisor)?;
    // Reap the zygote first: the kernel lets the init's end wait for it.
    let ended = reap(zygote).in_step(Step::WatchSupervisor)?;
    match (ended, reap(init).in_step(Step::WatchSupervisor)?) {
        (_, WaitStatus::Exited(_, errno)) if errno != 0 => {
            Err(Errno::from_raw(errno)).in_step(Step::SpawnInit)
        }
        (WaitStatus::Exited(_, code), _) => Ok(code),
        (WaitStatus::Signaled(_, signal, _), _) => Ok(128 + signal as i32),
        _ => Ok(0),
    }
}

/// Waits until a child has ended, without reaping it.
fn await_child() -> Result<(), Errno> {
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT;
    sys::uninterrupted(|| waitid(Id::All, flags)).map(drop)
}

fn reap(child: Pid) -> Result<WaitStatus, Errno> {
    sys::uninterrupted(|| waitpid(child, None))
}
