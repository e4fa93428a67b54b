//! Decides a run's one ending from the evidence. Pure: what the supervisor did and what the kernel
//! counted take precedence over what the worker reports.

mod no_memory;

use nix::errno::Errno;

use self::no_memory::says_no_memory;

use super::cgroup::Counts;
use crate::outcome::{Ending, LimitHit, LimitName, Mechanism, Reporter, Scope};
use crate::protocol::{CellResult, Ended, GuestError};
use sandfork_jail::control::{Exit, ExitStatus};
use sandfork_jail::program::ProcessMemory;

/// Why the supervisor ended a run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Stop {
    /// The run reached a limit that the supervisor watches.
    Limit(LimitHit),
    /// The worker broke the protocol.
    Violation(String),
    /// The caller cancelled the run.
    Cancelled,
}

impl Stop {
    /// A limit.
    pub const fn limit(name: LimitName, by: Mechanism) -> Self {
        Self::Limit(LimitHit { name, by })
    }

    /// The output limit.
    pub const fn output() -> Self {
        Self::limit(LimitName::Output, Mechanism::Supervisor)
    }

    /// A limit that the watchdog measured over the whole worker tree.
    pub const fn watchdog(name: LimitName) -> Self {
        Self::limit(name, Mechanism::Watchdog)
    }

    /// Whether ending the worker can wait a second, in which Python may end the cell by itself. It
    /// cannot for memory and processes, which meanwhile use up the host's.
    pub fn can_wait(&self) -> bool {
        match self {
            Self::Limit(hit) => hit.name.spec().scope == Scope::Run,
            Self::Violation(_) => false,
            Self::Cancelled => true,
        }
    }

    /// What happened, as the predicate of a sentence.
    pub fn in_words(&self) -> String {
        match self {
            Self::Limit(hit) => format!("reached `{}`", hit.name.key()),
            Self::Violation(how) => format!("broke the protocol: {how}"),
            Self::Cancelled => "was called off".to_owned(),
        }
    }
}

/// The kind of code that was run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Python, which reports its end in a frame.
    Cell,
    /// A program, whose exit status is its end.
    Program,
}

/// The evidence about a run.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// Why the supervisor ended the run, if it did.
    pub stop: Option<Stop>,
    /// How the main process ended.
    pub exit: Option<Exit>,
    /// What the worker reported, which may be false.
    pub result: Option<&'a CellResult>,
    /// The counts of the cgroup.
    pub counts: Counts,
    /// The quota of files that is used up at the end.
    pub full: Option<LimitName>,
    /// The processor time at which the kernel ends each process, microseconds. None in a session, whose cells the
    /// supervisor ends.
    pub cpu_limit_us: Option<u64>,
    /// The kind of code that was run.
    pub kind: Kind,
    /// What refuses the guest more memory.
    pub memory: ProcessMemory,
    /// What the guest wrote to its standard error.
    pub stderr: &'a [u8],
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
    let has_used = |share: u64| {
        let limit = evidence.cpu_limit_us;
        limit.is_some_and(|limit| cpu_us >= limit / 100 * share)
    };
    match signal {
        libc::SIGSYS => Ending::Denied,
        // A process can send itself the signal. The kernel compares the limit with another count, which is coarser.
        libc::SIGXCPU if has_used(90) => limit(LimitName::Cpu, Mechanism::Rlimit),
        libc::SIGXFSZ => limit(LimitName::FileSize, Mechanism::Rlimit),
        libc::SIGKILL if evidence.counts.oom_kills > 0 => {
            limit(LimitName::Memory, Mechanism::Cgroup)
        }
        libc::SIGKILL if has_used(100) => limit(LimitName::Cpu, Mechanism::Rlimit),
        libc::SIGABRT if has_found_no_memory(evidence) => no_memory(evidence),
        signal => Ending::Signal(signal),
    }
}

/// Who tells that a process of the run found no memory, if one did: not only the one whose end is decided.
pub fn without_memory(evidence: &Evidence) -> Option<Reporter> {
    if evidence.counts.oom_kills > 0 {
        Some(Reporter::Kernel)
    } else {
        has_found_no_memory(evidence).then_some(Reporter::Guest)
    }
}

/// Whether a program without `MemoryError` gave up for a limit that the kernel does not count.
fn has_found_no_memory(evidence: &Evidence) -> bool {
    matches!(evidence.memory, ProcessMemory::Mapped(_)) && says_no_memory(evidence.stderr)
}

/// The guest was refused more memory.
fn no_memory(evidence: &Evidence) -> Ending {
    let by = match evidence.memory {
        ProcessMemory::Mapped(_) => Mechanism::Rlimit,
        ProcessMemory::Touched(_) => Mechanism::Interpreter,
    };
    let name = LimitName::Memory;
    Ending::Limit(LimitHit { name, by })
}

fn by_itself(code: i32, evidence: &Evidence) -> Ending {
    let code = u8::try_from(code & 0xff).unwrap_or(u8::MAX);
    match (evidence.result.map(|result| &result.ended), code) {
        (Some(Ended::Ok(_)), 0) => Ending::Ok,
        (Some(Ended::Exception(error)), _) if evidence.kind == Kind::Program => {
            match error.errno.unwrap_or(Errno::ENOEXEC as i32) {
                libc::ENOMEM => no_memory(evidence),
                errno => Ending::NotStarted(errno),
            }
        }
        (Some(Ended::Exception(error)), 1) => {
            limit_behind(error, evidence).unwrap_or(Ending::Exception)
        }
        // The worker exited, or its exit status contradicts its report: the kernel's status counts.
        _ => Ending::Exit(code),
    }
}

/// The limit that made the guest raise, if one did.
///
/// A false report can only mislabel the guest's own failure, so the report is enough where the
/// kernel keeps no count. Where the kernel does count (refused forks), the count must agree. Where the interpreter
/// refuses memory, the worker says so with ENOMEM: code that raises a `MemoryError` itself reached no limit.
fn limit_behind(error: &GuestError, evidence: &Evidence) -> Option<Ending> {
    let counts = &evidence.counts;
    let hit = |name, by| Some(Ending::Limit(LimitHit { name, by }));
    let is_counted = matches!(evidence.memory, ProcessMemory::Touched(_));
    if !is_counted && (error.name == "MemoryError" || error.name.ends_with("ArrayMemoryError")) {
        return Some(no_memory(evidence));
    }
    let no_thread = error.name == "RuntimeError" && error.message.contains("start new thread");
    let errno = error.errno.map(Errno::from_raw);
    if no_thread || errno == Some(Errno::EAGAIN) {
        return match counts.refused_forks {
            Some(1..) => hit(LimitName::Pids, Mechanism::Cgroup),
            // The thread limit did not refuse the thread, so there was no memory for its stack.
            Some(_) if no_thread => Some(no_memory(evidence)),
            Some(_) => None,
            None => hit(LimitName::Pids, Mechanism::Rlimit),
        };
    }
    match errno? {
        Errno::ENOMEM => Some(no_memory(evidence)),
        Errno::EFBIG => hit(LimitName::FileSize, Mechanism::Rlimit),
        Errno::EMFILE => hit(LimitName::OpenFiles, Mechanism::Rlimit),
        // Without a full quota, a file system of the host may have been full, or the guest raised the error itself.
        Errno::ENOSPC | Errno::EDQUOT => hit(evidence.full?, Mechanism::Tmpfs),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
