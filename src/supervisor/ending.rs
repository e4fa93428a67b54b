//! From what was seen of a run to its one ending. Pure: what the supervisor did and what the
//! kernel counted come before anything that the worker says.

use nix::errno::Errno;

use super::cgroup::Counts;
use super::run::NoRoom;
use crate::jail::control::{Exit, ExitStatus};
use crate::outcome::{Ending, LimitHit, LimitName, Mechanism};
use crate::protocol::{CellResult, Ended, GuestError};

/// Why the supervisor ended a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Stop {
    /// A limit that the supervisor watches.
    Limit(LimitHit),
    /// The worker broke the protocol.
    Violation(String),
    /// The caller asked for it.
    Cancelled,
}

impl Stop {
    /// The wall clock.
    pub fn deadline() -> Self {
        Self::Limit(LimitHit {
            name: LimitName::Wall,
            by: Mechanism::Deadline,
        })
    }

    /// More output than allowed.
    pub fn output() -> Self {
        Self::Limit(LimitHit {
            name: LimitName::Output,
            by: Mechanism::Supervisor,
        })
    }

    /// What the watchdog measured over the whole worker tree.
    pub fn watchdog(name: LimitName) -> Self {
        Self::Limit(LimitHit {
            name,
            by: Mechanism::Watchdog,
        })
    }

    /// Whether it is soon enough to end a worker a second from now, which Python is given to end the
    /// cell by itself. Memory and processes take the host's with them meanwhile.
    pub fn can_wait(&self) -> bool {
        match self {
            Self::Limit(hit) => matches!(
                hit.name,
                LimitName::Wall | LimitName::Cpu | LimitName::Output
            ),
            Self::Violation(_) => false,
            Self::Cancelled => true,
        }
    }

    /// What happened, as the rest of a sentence about what did it.
    pub fn in_words(&self) -> String {
        match self {
            Self::Limit(hit) => format!("reached `{}`", hit.name.key()),
            Self::Violation(how) => format!("broke the protocol: {how}"),
            Self::Cancelled => "was called off".to_owned(),
        }
    }

    /// Processor time, counted by the cgroup.
    pub fn cpu() -> Self {
        Self::Limit(LimitHit {
            name: LimitName::Cpu,
            by: Mechanism::Cgroup,
        })
    }
}

/// What was run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Python, which reports its end in a frame.
    Cell,
    /// A program, whose exit status is its end.
    Program,
}

/// What was seen of a run.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// Why the supervisor ended it, if it did.
    pub stop: Option<Stop>,
    /// How the main process ended.
    pub exit: Option<Exit>,
    /// What the worker said, which may be a lie.
    pub result: Option<&'a CellResult>,
    /// What the cgroup counted.
    pub counts: Counts,
    /// What has no room, where the guest found that there is none.
    pub no_room: NoRoom,
    /// The processor time allowed, microseconds.
    pub cpu_limit_us: u64,
    /// What was run.
    pub kind: Kind,
}

/// The ending that the evidence shows.
pub fn decide(evidence: &Evidence) -> Ending {
    match &evidence.stop {
        Some(Stop::Limit(hit)) => return Ending::Limit(*hit),
        Some(Stop::Violation(how)) => return Ending::ProtocolViolation(how.clone()),
        Some(Stop::Cancelled) => return Ending::Interrupted,
        None => {}
    }
    match evidence.exit.map(|exit| exit.status) {
        Some(ExitStatus::Signal(signal)) => by_signal(signal, evidence),
        Some(ExitStatus::Code(code)) => by_itself(code, evidence),
        None => Ending::Signal(libc::SIGKILL),
    }
}

fn by_signal(signal: i32, evidence: &Evidence) -> Ending {
    let limit = |name, by| Ending::Limit(LimitHit { name, by });
    let cpu_us = evidence.exit.map_or(0, |exit| exit.cpu_us);
    match signal {
        libc::SIGSYS => Ending::Denied,
        libc::SIGXCPU => limit(LimitName::Cpu, Mechanism::Rlimit),
        libc::SIGXFSZ => limit(LimitName::FileSize, Mechanism::Rlimit),
        libc::SIGKILL if evidence.counts.oom_kills > 0 => {
            limit(LimitName::Memory, Mechanism::Cgroup)
        }
        libc::SIGKILL if cpu_us >= evidence.cpu_limit_us => {
            limit(LimitName::Cpu, Mechanism::Rlimit)
        }
        signal => Ending::Signal(signal),
    }
}

fn by_itself(code: i32, evidence: &Evidence) -> Ending {
    let code = u8::try_from(code & 0xff).unwrap_or(u8::MAX);
    match (evidence.result.map(|result| &result.ended), code) {
        (Some(Ended::Ok(_)), 0) => Ending::Ok,
        (Some(Ended::Exception(error)), _) if evidence.kind == Kind::Program => {
            Ending::NotStarted(error.errno.unwrap_or(Errno::ENOEXEC as i32))
        }
        (Some(Ended::Exception(error)), 1) => match limit_behind(error, evidence) {
            Some(hit) => Ending::Limit(hit),
            None => Ending::Exception,
        },
        // It exited, or its exit status contradicts what it said: the kernel's word counts.
        _ => Ending::Exit(code),
    }
}

/// The limit that made the guest raise, if one did.
///
/// The guest's word for it can only mislabel the guest's own failure, so that it is enough where
/// the kernel keeps no count; where it does (refused forks), the count must agree.
fn limit_behind(error: &GuestError, evidence: &Evidence) -> Option<LimitHit> {
    let counts = &evidence.counts;
    let hit = |name, by| Some(LimitHit { name, by });
    if error.name == "MemoryError" || error.name.ends_with("ArrayMemoryError") {
        return hit(LimitName::Memory, Mechanism::Rlimit);
    }
    let no_thread = error.name == "RuntimeError" && error.message.contains("start new thread");
    let errno = error.errno.map(Errno::from_raw);
    if no_thread || errno == Some(Errno::EAGAIN) {
        return match counts.refused_forks {
            Some(1..) => hit(LimitName::Pids, Mechanism::Cgroup),
            // A thread that was not refused for being one too many had no room for its stack.
            Some(_) if no_thread => hit(LimitName::Memory, Mechanism::Rlimit),
            Some(_) => None,
            None => hit(LimitName::Pids, Mechanism::Rlimit),
        };
    }
    match errno? {
        Errno::ENOMEM => hit(LimitName::Memory, Mechanism::Rlimit),
        Errno::EFBIG => hit(LimitName::FileSize, Mechanism::Rlimit),
        Errno::EMFILE => hit(LimitName::OpenFiles, Mechanism::Rlimit),
        Errno::ENOSPC | Errno::EDQUOT => match evidence.no_room {
            // A guest that tidied up before it ended leaves no trace of which it was.
            NoRoom::Quota(full) => hit(full.unwrap_or(LimitName::WorkSize), Mechanism::Tmpfs),
            NoRoom::Host => None,
        },
        _ => None,
    }
}

#[cfg(test)]
mod tests;
