//! How a run ended, as the supervisor decided it. For a limit that neither the kernel nor the supervisor counts, the
//! supervisor relies on the guest's report.

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
        /// seccomp killed the guest for a system call that the policy forbids.
        Denied = "denied",
        /// Another signal ended the guest, for example SIGSEGV.
        Signal = "signal",
        /// The guest tampered with its link to the supervisor.
        ProtocolViolation = "protocol-violation",
        /// The caller ended the run.
        Interrupted = "interrupted",
    }
}

/// How a run ended, with details. The supervisor decides it.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Ending {
    /// The code ran to its end.
    Ok,
    /// The code raised an uncaught exception.
    Exception,
    /// The program could not be started. Holds the errno of execve(2).
    NotStarted(i32),
    /// The code or program exited with this code.
    Exit(u8),
    /// The run reached a limit.
    Limit(LimitHit),
    /// seccomp killed the guest (SIGSYS).
    Denied,
    /// This signal ended the guest (signal(7)).
    Signal(i32),
    /// The guest tampered with its link to the supervisor. Describes how.
    ProtocolViolation(String),
    /// The caller ended the run.
    Interrupted,
}

impl Ending {
    /// Returns the status of a run that ended like this.
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
    /// The limit. In JSON, its policy key.
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
    /// The interpreter's allocators, which fail shortly before a control group would kill the guest.
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
