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
mod tests {
    use super::*;

    fn evidence<'a>() -> Evidence<'a> {
        Evidence {
            stop: None,
            exit: Some(Exit {
                status: ExitStatus::Code(0),
                cpu_us: 0,
                max_rss_kib: 0,
            }),
            result: None,
            counts: Counts::default(),
            cpu_limit_us: 2_000_000,
            no_room: NoRoom::Quota(None),
            kind: Kind::Cell,
        }
    }

    fn killed(signal: i32, cpu_us: u64) -> Exit {
        Exit {
            status: ExitStatus::Signal(signal),
            cpu_us,
            max_rss_kib: 0,
        }
    }

    fn exited(code: i32) -> Exit {
        Exit {
            status: ExitStatus::Code(code),
            cpu_us: 0,
            max_rss_kib: 0,
        }
    }

    fn raised(name: &str, errno: Option<i32>) -> CellResult {
        let error = GuestError {
            name: name.into(),
            errno,
            ..GuestError::default()
        };
        CellResult::new(1, Ended::Exception(error))
    }

    #[test]
    fn a_lie_does_not_outrank_the_supervisor() {
        let result = CellResult::new(1, Ended::Ok(None));
        let seen = Evidence {
            stop: Some(Stop::deadline()),
            result: Some(&result),
            ..evidence()
        };
        assert!(matches!(
            decide(&seen),
            Ending::Limit(LimitHit {
                name: LimitName::Wall,
                ..
            })
        ));
        let seen = Evidence {
            exit: Some(killed(libc::SIGSEGV, 0)),
            result: Some(&result),
            ..evidence()
        };
        assert_eq!(decide(&seen), Ending::Signal(libc::SIGSEGV));
    }

    #[test]
    fn a_full_disk_of_the_host_is_no_limit_of_the_policy() {
        let result = raised("OSError", Some(libc::ENOSPC));
        let found = |no_room| {
            decide(&Evidence {
                exit: Some(exited(1)),
                result: Some(&result),
                no_room,
                ..evidence()
            })
        };
        let quota = |name| {
            Ending::Limit(LimitHit {
                name,
                by: Mechanism::Tmpfs,
            })
        };
        let tmp = NoRoom::Quota(Some(LimitName::TmpSize));
        assert_eq!(found(tmp), quota(LimitName::TmpSize));
        assert_eq!(found(NoRoom::Quota(None)), quota(LimitName::WorkSize));
        assert_eq!(found(NoRoom::Host), Ending::Exception);
    }

    #[test]
    fn a_kill_is_told_apart_by_what_the_kernel_counted() {
        let by_kill = |cpu_us, oom_kills| {
            let counts = Counts {
                oom_kills,
                ..Counts::default()
            };
            decide(&Evidence {
                exit: Some(killed(libc::SIGKILL, cpu_us)),
                counts,
                ..evidence()
            })
        };
        assert_eq!(by_kill(0, 0), Ending::Signal(libc::SIGKILL));
        assert!(matches!(by_kill(0, 1), Ending::Limit(hit) if hit.by == Mechanism::Cgroup));
        assert!(matches!(by_kill(2_100_000, 0), Ending::Limit(hit) if hit.name == LimitName::Cpu));
    }

    #[test]
    fn a_soft_memory_error_is_not_an_oom_kill() {
        let result = raised("MemoryError", None);
        let seen = Evidence {
            exit: Some(exited(1)),
            result: Some(&result),
            ..evidence()
        };
        assert_eq!(
            decide(&seen),
            Ending::Limit(LimitHit {
                name: LimitName::Memory,
                by: Mechanism::Rlimit
            })
        );
    }

    #[test]
    fn try_again_is_a_limit_only_when_forks_were_refused() {
        let result = raised("BlockingIOError", Some(libc::EAGAIN));
        let refused = |refused_forks| {
            // Without the largest number, which Linux before 6.1 does not tell.
            let counts = Counts {
                refused_forks,
                ..Counts::default()
            };
            decide(&Evidence {
                result: Some(&result),
                counts,
                exit: Some(exited(1)),
                ..evidence()
            })
        };
        let pids = |by| {
            let name = LimitName::Pids;
            Ending::Limit(LimitHit { name, by })
        };
        assert_eq!(refused(Some(0)), Ending::Exception);
        assert_eq!(refused(Some(3)), pids(Mechanism::Cgroup));
        assert_eq!(refused(None), pids(Mechanism::Rlimit));
    }

    #[test]
    fn an_exit_code_that_contradicts_the_result_wins() {
        let result = CellResult::new(1, Ended::Ok(None));
        let exit = Some(Exit {
            status: ExitStatus::Code(5),
            cpu_us: 0,
            max_rss_kib: 0,
        });
        let seen = Evidence {
            exit,
            result: Some(&result),
            ..evidence()
        };
        assert_eq!(decide(&seen), Ending::Exit(5));
    }

    #[test]
    fn an_exit_without_a_word_keeps_its_code() {
        let exit = Some(Exit {
            status: ExitStatus::Code(7),
            cpu_us: 0,
            max_rss_kib: 0,
        });
        assert_eq!(decide(&Evidence { exit, ..evidence() }), Ending::Exit(7));
    }
}
