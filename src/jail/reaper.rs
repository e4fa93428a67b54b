//! What stands in for a pid namespace where there is none: a process above others, to which their
//! orphans come and which ends them all.
//!
//! The zygote's watcher is one, for the zygote and all of its workers; beneath it each worker has
//! one of its own. No guest code runs in either.

use std::os::fd::{AsFd, BorrowedFd};

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
    /// By walking down the tree.
    Tree,
}

impl Reach {
    /// Makes the caller a reaper of what it forks from now on. Needs `no_new_privs`.
    pub fn establish(jail: &ZygoteJail) -> Result<Self, Failure> {
        nix::sys::prctl::set_child_subreaper(true).in_step(Step::AdoptOrphans)?;
        match &jail.landlock {
            Some(rules) if rules.abi >= landlock::ABI_SCOPE => {
                landlock::scope_signals().in_step(Step::ScopeSignals)?;
                Ok(Self::Scope)
            }
            _ => Ok(Self::Tree),
        }
    }
}

/// A process that has become a reaper.
pub struct Reaper {
    reach: Reach,
    children: SignalFd,
}

/// Why it is time to end what is left.
pub enum Over {
    /// The child that was watched has ended.
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
    /// Goes on as a reaper, after it forked what it is to watch.
    pub fn new(reach: Reach) -> Result<Self, Errno> {
        // All blocked: the interpreter's handlers must not run here.
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), None)?;
        let mut sigchld = SigSet::empty();
        sigchld.add(Signal::SIGCHLD);
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            reach,
            children: SignalFd::with_flags(&sigchld, flags)?,
        })
    }

    /// Reaps until the child `main` has ended, or one of `ties` is cut: readable, or hung up.
    pub fn watch(&self, main: Pid, ties: &[BorrowedFd]) -> Result<Over, Errno> {
        loop {
            while self.children.read_signal()?.is_some() {}
            while let Some((pid, reaped)) = sys::process::reap_any()? {
                if pid == main {
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

    /// Kills and reaps until nothing is left; tells of the child `main`, if it was still there.
    pub fn end_all(&self, proc: BorrowedFd, main: Pid) -> Result<Option<Reaped>, Errno> {
        let mut end = None;
        loop {
            while let Some((pid, reaped)) = sys::process::reap_any()? {
                if pid == main {
                    end = Some(reaped);
                }
            }
            let waited = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
            if waitid(Id::All, waited) == Err(Errno::ECHILD) {
                return Ok(end);
            }
            match self.reach {
                // An error is that there is nobody.
                Reach::Scope => _ = kill(Pid::from_raw(-1), Signal::SIGKILL),
                Reach::Tree => tree::kill_beneath(proc, &[]),
            }
            let mut fds = [PollFd::new(self.children.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::from(PATIENCE_MS)) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno),
            }
            while self.children.read_signal()?.is_some() {}
        }
    }
}
