//! How a run ended: decided by the supervisor, never by the guest.

use std::fmt;

use serde::{Serialize, Serializer};

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
            Self::Limit(hit) => hit.name.status(),
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
    /// The limit, by its key in the policy.
    pub name: LimitName,
    /// What held it.
    pub by: Mechanism,
}

/// The limits of a policy that can end a run.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum LimitName {
    /// Time on the clock.
    Wall,
    /// Processor time of all processes.
    Cpu,
    /// Memory of all processes.
    Memory,
    /// Processes and threads.
    Pids,
    /// Bytes written to stdout and stderr together.
    Output,
    /// Size of one file.
    FileSize,
    /// Open descriptors of one process.
    OpenFiles,
    /// Bytes in `/work`.
    WorkSize,
    /// Files in `/work`.
    WorkInodes,
    /// Bytes in `/tmp`.
    TmpSize,
    /// Files in `/tmp`.
    TmpInodes,
}

impl LimitName {
    /// The key in a policy file, and for `--set`.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Wall => "limits.wall",
            Self::Cpu => "limits.cpu",
            Self::Memory => "limits.memory",
            Self::Pids => "limits.pids",
            Self::Output => "limits.output",
            Self::FileSize => "limits.file_size",
            Self::OpenFiles => "limits.open_files",
            Self::WorkSize => "filesystem.work_size",
            Self::WorkInodes => "filesystem.work_inodes",
            Self::TmpSize => "filesystem.tmp_size",
            Self::TmpInodes => "filesystem.tmp_inodes",
        }
    }

    /// The status of a run that reached it.
    pub const fn status(self) -> Status {
        match self {
            Self::Wall => Status::Timeout,
            Self::Cpu => Status::CpuLimit,
            Self::Memory => Status::MemoryLimit,
            Self::Pids => Status::PidsLimit,
            Self::Output => Status::OutputLimit,
            Self::FileSize
            | Self::OpenFiles
            | Self::WorkSize
            | Self::WorkInodes
            | Self::TmpSize
            | Self::TmpInodes => Status::FileLimit,
        }
    }
}

impl Serialize for LimitName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.key())
    }
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
