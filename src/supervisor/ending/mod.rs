//! Decides a run's ending from the evidence, without I/O. Actions of the supervisor and counts of the kernel take
//! precedence over the worker's report.

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
    /// Creates a stop for a limit.
    pub const fn limit(name: LimitName, by: Mechanism) -> Self {
        Self::Limit(LimitHit { name, by })
    }

    /// Creates a stop for the output limit.
    pub const fn output() -> Self {
        Self::limit(LimitName::Output, Mechanism::Supervisor)
    }

    /// Creates a stop for a limit that the watchdog measured over the whole process tree of the worker.
    pub const fn watchdog(name: LimitName) -> Self {
        Self::limit(name, Mechanism::Watchdog)
    }

    /// Whether killing the worker can wait for a second, in which Python may end the cell by itself. Limits on memory
    /// and processes cannot wait: meanwhile the worker would use up those of the host.
    pub fn can_wait(&self) -> bool {
        match self {
            Self::Limit(hit) => hit.name.spec().scope == Scope::Run,
            Self::Violation(_) => false,
            Self::Cancelled => true,
        }
    }

    /// Returns what happened, as the predicate of a sentence.
    pub fn in_words(&self) -> String {
        match self {
            Self::Limit(hit) => format!("reached `{}`", hit.name.key()),
            Self::Violation(how) => format!("broke the protocol: {how}"),
            Self::Cancelled => "was cancelled".to_owned(),
        }
    }
}

/// The kind of code that was run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Python code, which reports its end in a frame.
    Cell,
    /// A program, which reports its end by its exit status.
    Program,
}

/// The evidence about a run.
#[derive(Debug)]
pub struct Evidence<'a> {
    /// Why the supervisor ended the run, if it did.
    pub stop: Option<Stop>,
    /// How the main process ended.
    pub exit: Option<Exit>,
    /// The worker's report, which may be forged.
    pub result: Option<&'a CellResult>,
    /// The cgroup's counts.
    pub counts: Counts,
    /// The exhausted file quota, if there is one.
    pub full: Option<LimitName>,
    /// The CPU time at which the kernel kills each process (`RLIMIT_CPU`), microseconds. `None` in a session, where the
    /// supervisor ends cells.
    pub cpu_limit_us: Option<u64>,
    /// The kind of code that was run.
    pub kind: Kind,
    /// The mechanism that limits the guest's memory.
    pub memory: ProcessMemory,
    /// The guest's stderr.
    pub stderr: &'a [u8],
}

/// Decides the ending.
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
        // A process can send itself SIGXCPU, so the time must match. 90 % suffices, because the kernel compares the
        // limit with a coarser count.
        libc::SIGXCPU if has_used(90) => limit(LimitName::Cpu, Mechanism::Rlimit),
        libc::SIGXFSZ => limit(LimitName::FileSize, Mechanism::Rlimit),
        libc::SIGKILL if evidence.counts.oom_kills > 0 => {
            limit(LimitName::Memory, Mechanism::Cgroup)
        }
        libc::SIGKILL if has_used(100) => limit(LimitName::Cpu, Mechanism::Rlimit),
        libc::SIGABRT if ran_out_of_memory(evidence) => no_memory(evidence),
        signal => Ending::Signal(signal),
    }
}

/// Returns who reports that a process of the run, not necessarily the main process, ran out of memory, if one did.
pub fn without_memory(evidence: &Evidence) -> Option<Reporter> {
    if evidence.counts.oom_kills > 0 {
        Some(Reporter::Kernel)
    } else {
        ran_out_of_memory(evidence).then_some(Reporter::Guest)
    }
}

/// Whether a program gave up, without a `MemoryError`, at a memory limit that the kernel does not count.
fn ran_out_of_memory(evidence: &Evidence) -> bool {
    matches!(evidence.memory, ProcessMemory::Mapped(_)) && says_no_memory(evidence.stderr)
}

/// Returns the ending of a guest that was refused more memory.
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
        // The worker exited without a report, or its exit status contradicts the report: the kernel's status counts.
        _ => Ending::Exit(code),
    }
}

/// Returns the limit that caused the guest's exception, if one did.
///
/// A forged report can only mislabel the guest's own failure, so the report is enough where the kernel keeps no count.
/// Where the kernel does count (refused forks), the count must agree. Where the interpreter refuses memory, the worker
/// reports ENOMEM: code that raises a `MemoryError` itself reached no limit.
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
            // The pids limit did not refuse the thread, so memory for its stack was refused.
            Some(_) if no_thread => Some(no_memory(evidence)),
            Some(_) => None,
            None => hit(LimitName::Pids, Mechanism::Rlimit),
        };
    }
    match errno? {
        Errno::ENOMEM => Some(no_memory(evidence)),
        Errno::EFBIG => hit(LimitName::FileSize, Mechanism::Rlimit),
        Errno::EMFILE => hit(LimitName::OpenFiles, Mechanism::Rlimit),
        // If no quota is exhausted, a file system of the host was full, or the guest raised the error itself.
        Errno::ENOSPC | Errno::EDQUOT => hit(evidence.full?, Mechanism::Tmpfs),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
