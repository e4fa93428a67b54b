//! How a run ended: decided by the supervisor, never by the guest.

use std::fmt;

use serde::{Serialize, Serializer};

use crate::policy::LimitName;

/// How a run ended, in one word: `status` of the JSON object.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Status {
    /// It ran to its end.
    Ok,
    /// An uncaught exception.
    Exception,
    /// `sys.exit`, `os._exit`, or a program's exit status.
    Exit,
    /// `limits.wall`.
    Timeout,
    /// `limits.cpu`.
    CpuLimit,
    /// `limits.memory`.
    MemoryLimit,
    /// `limits.pids`.
    PidsLimit,
    /// `limits.output`.
    OutputLimit,
    /// `limits.file_size`, `limits.open_files`, or a quota on `/work` or `/tmp`.
    FileLimit,
    /// Killed by seccomp for a system call that the policy refuses by death.
    Denied,
    /// Ended by any other signal, such as a segmentation fault.
    Signal,
    /// The guest tampered with its link to the supervisor.
    ProtocolViolation,
    /// The caller ended it.
    Interrupted,
}

impl Status {
    /// The word, as it stands in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Exception => "exception",
            Self::Exit => "exit",
            Self::Timeout => "timeout",
            Self::CpuLimit => "cpu-limit",
            Self::MemoryLimit => "memory-limit",
            Self::PidsLimit => "pids-limit",
            Self::OutputLimit => "output-limit",
            Self::FileLimit => "file-limit",
            Self::Denied => "denied",
            Self::Signal => "signal",
            Self::ProtocolViolation => "protocol-violation",
            Self::Interrupted => "interrupted",
        }
    }
}

impl Status {
    /// The status of a run that a limit ended.
    pub const fn of_limit(name: LimitName) -> Self {
        match name {
            // A share of the processors ends nothing by itself; what it makes slow runs out of time.
            LimitName::Wall | LimitName::Cores => Self::Timeout,
            LimitName::Cpu => Self::CpuLimit,
            LimitName::Memory => Self::MemoryLimit,
            LimitName::Pids => Self::PidsLimit,
            LimitName::Output => Self::OutputLimit,
            LimitName::FileSize
            | LimitName::OpenFiles
            | LimitName::WorkSize
            | LimitName::WorkInodes
            | LimitName::TmpSize
            | LimitName::TmpInodes => Self::FileLimit,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.as_str())
    }
}

/// How a run ended, with what belongs to that end. Decided by the supervisor.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Ending {
    /// It ran to its end.
    Ok,
    /// An uncaught exception.
    Exception,
    /// A program could not be started; `errno` of execve(2).
    NotStarted(i32),
    /// It exited with this code.
    Exit(u8),
    /// A limit was reached.
    Limit(LimitHit),
    /// Killed by seccomp (SIGSYS).
    Denied,
    /// Ended by this signal (signal(7)).
    Signal(i32),
    /// The guest tampered with its link; how, in words.
    ProtocolViolation(String),
    /// The caller ended it.
    Interrupted,
}

impl Ending {
    /// The same in one word.
    pub const fn status(&self) -> Status {
        match self {
            Self::Ok => Status::Ok,
            Self::Exception | Self::NotStarted(_) => Status::Exception,
            Self::Exit(_) => Status::Exit,
            Self::Limit(hit) => Status::of_limit(hit.name),
            Self::Denied => Status::Denied,
            Self::Signal(_) => Status::Signal,
            Self::ProtocolViolation(_) => Status::ProtocolViolation,
            Self::Interrupted => Status::Interrupted,
        }
    }
}

/// The limit that ended a run, and what noticed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct LimitHit {
    /// The limit; in JSON, its key in the policy.
    #[serde(serialize_with = "key")]
    pub name: LimitName,
    /// What held it.
    pub by: Mechanism,
}

// serde passes a field by reference, however small it is.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn key<S: Serializer>(name: &LimitName, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(name.key())
}

/// What held a limit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mechanism {
    /// A control group (cgroups(7)).
    Cgroup,
    /// A resource limit of a process (getrlimit(2)).
    Rlimit,
    /// The quota of a private tmpfs (tmpfs(5)).
    Tmpfs,
    /// The supervisor's sampling of the process tree, where there is no control group.
    Watchdog,
    /// The supervisor's clock.
    Deadline,
    /// The supervisor's count of what passed through it.
    Supervisor,
}
