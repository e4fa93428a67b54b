//! How a run ended. The supervisor decides this. Of limits that nothing counts it has only the guest's word.

use serde::Serialize;

use super::LimitName;
use super::word_enum::word_enum;

word_enum! {
    /// How a run ended, in one word: `status` of the JSON object.
    #[non_exhaustive]
    pub enum Status {
        /// The code ran to its end.
        Ok = "ok",
        /// The code raised an uncaught exception.
        Exception = "exception",
        /// The code called `sys.exit` or `os._exit`, or a program exited.
        Exit = "exit",
        /// The run reached `limits.wall`.
        Timeout = "timeout",
        /// The run reached `limits.cpu`.
        CpuLimit = "cpu-limit",
        /// The run reached `limits.memory`.
        MemoryLimit = "memory-limit",
        /// The run reached `limits.pids`.
        PidsLimit = "pids-limit",
        /// The run reached `limits.output`.
        OutputLimit = "output-limit",
        /// The run reached `limits.file_size`, `limits.open_files`, or a quota on `/work` or `/tmp`.
        FileLimit = "file-limit",
        /// seccomp killed it for a system call that the policy punishes with death.
        Denied = "denied",
        /// Another signal ended it, for example a segmentation fault.
        Signal = "signal",
        /// The guest tampered with its link to the supervisor.
        ProtocolViolation = "protocol-violation",
        /// The caller ended it.
        Interrupted = "interrupted",
    }
}

/// How a run ended, with the details of that end. The supervisor decides it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Ending {
    /// The code ran to its end.
    Ok,
    /// The code raised an uncaught exception.
    Exception,
    /// A program could not be started; the errno of execve(2).
    NotStarted(i32),
    /// It exited with this code.
    Exit(u8),
    /// A limit was reached.
    Limit(LimitHit),
    /// seccomp killed it (SIGSYS).
    Denied,
    /// Ended by this signal (signal(7)).
    Signal(i32),
    /// The guest tampered with its link to the supervisor; a description of how.
    ProtocolViolation(String),
    /// The caller ended it.
    Interrupted,
}

impl Ending {
    /// The end, in one word.
    pub const fn status(&self) -> Status {
        match self {
            Self::Ok => Status::Ok,
            Self::Exception | Self::NotStarted(_) => Status::Exception,
            Self::Exit(_) => Status::Exit,
            Self::Limit(hit) => hit.name.spec().status,
            Self::Denied => Status::Denied,
            Self::Signal(_) => Status::Signal,
            Self::ProtocolViolation(_) => Status::ProtocolViolation,
            Self::Interrupted => Status::Interrupted,
        }
    }
}

/// The limit that ended a run, and the mechanism that enforced it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct LimitHit {
    /// The limit; in JSON, its key in the policy.
    pub name: LimitName,
    /// The mechanism that enforced it.
    pub by: Mechanism,
}

/// The mechanism that enforced a limit.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Mechanism {
    /// A control group (cgroups(7)).
    Cgroup,
    /// A resource limit of a process (getrlimit(2)).
    Rlimit,
    /// The interpreter, which makes no more objects shortly before a control group would end the guest.
    Interpreter,
    /// The quota of a private tmpfs (tmpfs(5)).
    Tmpfs,
    /// The supervisor's sampling of the process tree, on hosts without a control group.
    Watchdog,
    /// The supervisor's clock.
    Deadline,
    /// The supervisor's count of the data that passed through it.
    Supervisor,
}
