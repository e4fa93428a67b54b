//! What stands in for a pid namespace where there is none: a process above others, to which their
//! orphans come and which ends them all.
//!
//! The zygote's watcher is one, for the zygote and all of its workers; beneath it each worker has
//! one of its own. No guest code runs in either.

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
use crate::sys::process::Reaped;

/// How all that is beneath a reaper is found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reach {
    /// It is in the reaper's own Landlock scope, and nothing else is: one kill(2) of every process
    /// that the reaper may signal is all of it, at one moment, whatever it is forking.
    Scope,
    /// It is in the process group that the child made: the guest's filter lets nothing leave it, so
    /// that one kill(2) of the group is all of it too.
    Group,
    /// By walking down the tree, where there are several groups.
    Tree,
}

impl Reach {
    /// Makes the caller a reaper of what it forks from now on. Needs `no_new_privs`. A kernel that
    /// cannot scope signals leaves it `otherwise`.
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
    /// The child that it is for, and a handle on it, because it may have been reaped.
    main: Pid,
    handle: OwnedFd,
    children: SignalFd,
}

/// Why it is time to end what is left.
pub enum Over {
    /// The child that it was for has ended.
    Ended(Reaped),
    /// What holds the other end of a tie is gone, or says that it is enough.
    Cut {
        /// Which.
        tie: usize,
    },
}

/// How long a killed process is waited for before it is looked for again.
const PATIENCE_MS: u16 = 10;

impl Reaper {
    /// Goes on as a reaper, after it forked the child that it is for.
    pub fn new(reach: Reach, main: Pid) -> Result<Self, Errno> {
        // All blocked: the interpreter's handlers must not run here.
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

    /// Reaps until the child has ended, or one of `ties` is cut: readable, or hung up.
    pub fn watch(&self, ties: &[BorrowedFd]) -> Result<Over, Errno> {
        loop {
            while self.children.read_signal()?.is_some() {}
            while let Some((pid, reaped)) = sys::process::reap_any()? {
                if pid == self.main {
                    return Ok(Over::Ended(reaped));
                }
            }
            let mut fds = vec![PollFd::new(self.children.as_fd(), PollFlags::POLLIN)];
            fds.extend(ties.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)));
            match poll(&mut fds, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                other => other?,
            };
            let cut = fds[1..].iter().position(|fd| fd.any().unwrap_or(true));
            if let Some(tie) = cut {
                return Ok(Over::Cut { tie });
            }
        }
    }

    /// Kills and reaps until nothing is left; tells of the child, if it was still there.
    pub fn end_all(&self, proc: BorrowedFd) -> Result<Option<Reaped>, Errno> {
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

    /// Kills what is beneath. An error each time is that there is nobody.
    fn kill(&self, proc: BorrowedFd) {
        // First, so that it forks nothing while the others are ended, and in case that it had not
        // made its group.
        _ = sys::pidfd::signal(self.handle.as_fd(), Signal::SIGKILL);
        match self.reach {
            Reach::Scope => _ = kill(Pid::from_raw(-1), Signal::SIGKILL),
            // A process group keeps its number as long as a process is in it, even one that was not
            // reaped yet. Only this process reaps, and it has a child: the number is the worker's.
            Reach::Group => _ = kill(Pid::from_raw(-self.main.as_raw()), Signal::SIGKILL),
            Reach::Tree => tree::kill_beneath(proc, &[]),
        }
    }
}
