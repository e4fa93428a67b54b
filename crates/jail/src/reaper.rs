//! Replaces a pid namespace at level `landlock`: a process that adopts the orphans of the processes
//! below it and ends them all.
//!
//! The zygote's watcher is a reaper, for the zygote and all of its workers. Below it, each worker
//! has a reaper of its own. No guest code runs in either.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use super::failure::{Failure, InStep, Step};
use super::program::ZygoteJail;
use super::{landlock, tree};
use crate::sys;
use crate::sys::process::Exit;

/// How a reaper finds all processes below it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// They are all in the reaper's own Landlock scope, and nothing else is. One kill(2) of every
    /// process that the reaper may signal ends all of them at one moment, even while they fork.
    Scope,
    /// They are all in the process group that the child made. The guest's filter lets no process
    /// leave the group, so one kill(2) of the group also ends all of them.
    Group,
    /// The reaper walks down the process tree, because there are several groups.
    Tree,
}

impl Reach {
    /// Makes the caller a reaper of every process that it forks from now on. Needs `no_new_privs`.
    /// Returns `otherwise` on a kernel that cannot scope signals.
    pub fn establish(jail: &ZygoteJail, otherwise: Self) -> Result<Self, Failure> {
        nix::sys::prctl::set_child_subreaper(true).in_step(Step::AdoptOrphans)?;
        match &jail.landlock {
            Some(rules) if rules.abi >= landlock::ABI_SCOPE => {
                landlock::scope_signals().in_step(Step::ScopeSignals)?;
                Ok(Self::Scope)
            }
            _ => Ok(otherwise),
        }
    }
}

/// A process that has become a reaper.
pub struct Reaper {
    reach: Reach,
    /// The reaper's child, and a handle on it, because it may have been reaped.
    main: Pid,
    handle: OwnedFd,
    children: SignalFd,
}

/// Why the reaper must end the remaining processes.
pub enum EndReason {
    /// The reaper's child has ended.
    Ended(Exit),
    /// The holder of a tie's other end is gone, or asked for the end. Holds the index of the tie.
    HolderGone(usize),
}

/// How long the reaper waits for a killed process before it looks for it again, milliseconds.
const PATIENCE_MS: u16 = 10;

impl Reaper {
    /// Continues as a reaper, after the process forked its child.
    pub fn new(reach: Reach, main: Pid) -> Result<Self, Errno> {
        // Block all signals: the interpreter's handlers must not run here.
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
        let mut sigchld = SigSet::empty();
        sigchld.add(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            reach,
            main,
            handle: sys::pidfd::open(main)?,
            children: SignalFd::with_flags(&sigchld, flags)?,
        })
    }

    /// A handle on the child.
    pub fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Reaps until the child has ended, or one of `ties` is readable or hung up.
    pub fn watch(&self, ties: &[BorrowedFd]) -> Result<EndReason, Errno> {
        loop {
            while self.children.read_signal()?.is_some() {}
            while let Some((pid, reaped)) = sys::process::reap_any()? {
                if pid == self.main {
                    return Ok(EndReason::Ended(reaped));
                }
            }
            let mut fds = vec![PollFd::new(self.children.as_fd(), PollFlags::POLLIN)];
            fds.extend(ties.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)));
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let gone = fds[1..].iter().position(|fd| fd.any().unwrap_or(true));
            if let Some(index) = gone {
                return Ok(EndReason::HolderGone(index));
            }
        }
    }

    /// Kills and reaps until no process is left. Returns how the child ended, if it had not been
    /// reaped before.
    pub fn end_all(&self, proc: BorrowedFd) -> Result<Option<Exit>, Errno> {
        let mut end = None;
        loop {
            while let Some((pid, reaped)) = sys::process::reap_any()? {
                if pid == self.main {
                    end = Some(reaped);
                }
            }
            let waited = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            if waitid(Id::All, waited) == Err(Errno::ECHILD) {
                return Ok(end);
            }
            self.kill(proc);
            let mut fds = [PollFd::new(self.children.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::from(PATIENCE_MS)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            while self.children.read_signal()?.is_some() {}
        }
    }

    /// Kills the processes below. It ignores errors: each means that there is no such process.
    fn kill(&self, proc: BorrowedFd) {
        // The child first, so that it forks nothing while the others are ended, and in case it had
        // not made its group yet.
        _ = sys::pidfd::signal(self.handle.as_fd(), Signal::SIGKILL);
        match self.reach {
            Reach::Scope => _ = kill(Pid::from_raw(-1), Signal::SIGKILL),
            // A process group keeps its number as long as it has a process, even one that was not
            // reaped yet. Only this process reaps, and it has a child, so the number is still the
            // worker's.
            Reach::Group => _ = kill(Pid::from_raw(-self.main.as_raw()), Signal::SIGKILL),
            Reach::Tree => tree::kill_beneath(proc, &[]),
        }
    }
}
