//! Replaces a pid namespace at level `landlock`: a process that adopts the orphans among its descendants and ends all
//! descendants.
//!
//! The zygote's watcher is a reaper for the zygote and all of its workers. Below it, each worker has its own reaper.
//! Neither runs guest code.

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

/// The method by which a reaper finds all processes below it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// The reaper's Landlock scope contains exactly these processes. One kill(2) of every process that the reaper may
    /// signal ends all of them at once, even while they fork.
    Scope,
    /// The process group of the reaper's child contains all of them. The guest's filter lets no process leave the
    /// group, so one kill(2) of the group also ends all of them.
    Group,
    /// The reaper walks the process tree, because there are several groups.
    Tree,
}

impl Reach {
    /// Makes the caller a reaper of every process that it forks from now on. Requires `no_new_privs`. Returns
    /// `otherwise` on a kernel that cannot scope signals.
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
    /// The reaper's child, and its pidfd, because the child may have been reaped.
    main: Pid,
    handle: OwnedFd,
    children: SignalFd,
}

/// The reason why the reaper must end the remaining processes.
pub enum EndReason {
    /// The reaper's child has ended.
    Ended(Exit),
    /// The peer that holds the other end of a tie is gone or requested the end. Contains the index of the tie.
    HolderGone(usize),
}

/// How long the reaper waits for killed processes to end before it kills the remaining ones again, milliseconds.
const KILL_RETRY_MS: u16 = 10;

impl Reaper {
    /// Turns this process into the reaper of its child `main`.
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

    /// Returns the pidfd of the child.
    pub fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Reaps descendants until the child has ended, or one of `ties` is readable or hung up.
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

    /// Kills and reaps until no process is left. Returns how the child ended, unless it was reaped before.
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
            match poll(&mut fds, PollTimeout::from(KILL_RETRY_MS)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            while self.children.read_signal()?.is_some() {}
        }
    }

    /// Kills the processes below. Errors are ignored: each means that there is no such process.
    fn kill(&self, proc: BorrowedFd) {
        // The child first, so that it forks nothing while the others are killed, and in case it has not created its
        // group yet.
        _ = sys::pidfd::signal(self.handle.as_fd(), Signal::SIGKILL);
        match self.reach {
            Reach::Scope => _ = kill(Pid::from_raw(-1), Signal::SIGKILL),
            // A process group keeps its number as long as it has a process, including a zombie. Only this process
            // reaps, and it has a child, so the number still refers to the worker's group.
            Reach::Group => _ = kill(Pid::from_raw(-self.main.as_raw()), Signal::SIGKILL),
            Reach::Tree => tree::kill_beneath(proc, &[]),
        }
    }
}
