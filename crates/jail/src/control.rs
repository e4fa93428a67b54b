//! Messages between supervisor and zygote. Both are trusted; guest code runs in neither.
//!
//! Each message is one datagram of JSON on a `SOCK_SEQPACKET` pair, with descriptors attached. Every
//! worker has a second such pair, its monitor, on which the zygote reports the worker's start and end.
//! Concurrent runs therefore share no reader and no lock.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::SystemTime;

use nix::errno::Errno;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::failure::Failure;
use super::program::ZygoteJail;
use crate::sys::descriptors::{receive, send};
pub use crate::sys::process::{Exit, ExitStatus};

/// The largest message, bytes.
pub const MAX_MESSAGE: usize = 160 * 1024;

/// The most bytes that the names of preloaded modules take in [`FromZygote::Ready`]. The rest of the message is shorter than
/// 4 KiB.
pub const MAX_PRELOADED: usize = MAX_MESSAGE - 4 * 1024;

/// The maximum number of live workers of a zygote.
pub const MAX_WORKERS: u16 = 4096;

/// Sends one message with its descriptors.
///
/// # Errors
///
/// `EMSGSIZE` if it is larger than [`MAX_MESSAGE`], or the errno of sendmsg(2).
pub fn send_message(
    socket: BorrowedFd,
    message: &impl Serialize,
    fds: &[BorrowedFd],
) -> Result<(), Errno> {
    let bytes = serde_json::to_vec(message).map_err(|_| Errno::EINVAL)?;
    if bytes.len() > MAX_MESSAGE {
        return Err(Errno::EMSGSIZE);
    }
    send(socket, &bytes, fds)
}

/// Receives one message, which must fit into `buffer`. Returns `None` at end of file.
///
/// # Errors
///
/// `EPROTO` if it is not such a message, or the errno of recvmsg(2).
pub fn recv_message<M: DeserializeOwned>(
    socket: BorrowedFd,
    buffer: &mut [u8],
) -> Result<Option<(M, Vec<OwnedFd>)>, Errno> {
    let (length, fds) = receive(socket, buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&buffer[..length]).map_err(|_| Errno::EPROTO)?;
    Ok(Some((message, fds)))
}

/// Zygote to supervisor, on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FromZygote {
    /// First message: the facts that the interpreter reports about itself.
    Facts {
        /// The text that `host::Interpreter::from_facts` reads.
        text: String,
    },
    /// A step of the jail failed; the process ends.
    Failed {
        /// `Step` as a number.
        step: u16,
        /// errno(3).
        errno: i32,
    },
    /// The next module of the preload list is being imported. If nothing follows, the import ended the
    /// process, or does not return.
    Preloading {
        /// Its name; `None` after the last one.
        module: Option<String>,
    },
    /// The interpreter could not be made ready; the process ends.
    Unready(Unready),
    /// Modules are preloaded and frozen, and the zygote serves requests.
    Ready {
        /// The modules of the preload list that were imported.
        preloaded: Vec<String>,
        /// The zygote's namespaces: its links in `/proc/self/ns`, in the order of [`NAMESPACES`]. A
        /// worker that must have its own namespaces may be in none of these. No other process may read
        /// the links.
        namespaces: Vec<String>,
        /// How many pages each fork copies at once, or why it copies none, as errno(3). `None` in a zygote for one run.
        copied: Option<Result<usize, i32>>,
    },
}

/// Names of links beneath `/proc/PID` (namespaces(7)).
pub const NAMESPACES: [&str; 7] = [
    "ns/user",
    "ns/mnt",
    "ns/pid",
    "ns/ipc",
    "ns/uts",
    "ns/cgroup",
    "ns/net",
];

/// Why a zygote could not be made ready.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "cause", rename_all = "kebab-case")]
pub enum Unready {
    /// `import module` failed.
    Preload {
        /// The module that could not be imported.
        module: String,
        /// The exception's type and message.
        error: String,
    },
    /// Importing left more than one thread, and a process with threads cannot be forked safely.
    Threads {
        /// The module that started them, or `site`.
        module: String,
    },
    /// Importing left memory that all workers would share, and could write to.
    SharedMemory {
        /// The module that keeps it, or `site`.
        module: String,
    },
    /// Another part of the interpreter's start failed.
    Startup {
        /// The exception's type and message.
        error: String,
    },
}

/// Supervisor to zygote, on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToZygote {
    /// Enter a jail, then prepare. Descriptors: a sealed memory file with the [`ZygotePlan`], the lifeline, a handle on the
    /// supervisor, and one memory file for each of `lent`.
    Enter {
        /// The length of the plan, bytes.
        length: usize,
        /// What earlier zygotes left to this one.
        lent: Vec<Lent>,
    },
    /// Fork a worker. Descriptors: stdin, stdout, stderr, data, monitor, then cgroup files.
    Spawn {
        /// The processor at which the worker's pinning starts, if the plan pins workers.
        first_core: usize,
        /// The host directory that replaces `/work`, at level `landlock`.
        work: Option<PathBuf>,
        /// What the limit on processor time applies to.
        cpu: CpuBudgetScope,
        /// The host uid that the worker takes, one of those that the zygote's user namespace maps for
        /// workers.
        uid: Option<u32>,
    },
}

/// What a zygote enters and how it prepares. A datagram may be too small for the paths of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZygotePlan {
    /// The jail.
    pub jail: ZygoteJail,
    /// How to prepare the interpreter in it.
    pub python: PythonSetup,
}

/// What a memory file holds that the supervisor lends to a zygote. If it is empty, the zygote fills it for
/// later zygotes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lent {
    /// Byte code of the guest's side. The file is sealed once it is filled.
    Codes,
    /// The list of fonts that matplotlib makes at its import.
    Fonts,
}

/// What a worker's limit on processor time applies to.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuBudgetScope {
    /// The worker's whole life. The kernel also holds each process to it by `RLIMIT_CPU`.
    Life,
    /// Each cell separately. The jail does not set `RLIMIT_CPU`, which counts from the fork on; the
    /// supervisor enforces the limit.
    Cell,
}

/// How the interpreter is prepared inside its jail.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PythonSetup {
    /// Directories to add to `sys.path`, after the standard library.
    pub path: Vec<String>,
    /// The directory of a program of several files, first in `sys.path`.
    pub project: Option<String>,
    /// Modules to import before the first fork.
    pub preload: Vec<PreloadModule>,
    /// What guest code may import: `*`, `name`, `name.*`.
    pub imports: Vec<String>,
    /// How many workers the zygote will fork.
    pub lifetime: Lifetime,
    /// What serves the runs of its workers.
    pub run_path: RunPath,
    /// Environment variables with their values while modules are preloaded, so that their libraries
    /// start no threads. Each worker gets the environment's own values back.
    pub preload_env: Vec<(String, String)>,
}

/// How many workers a zygote will fork.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// Many: the zygote first does the work that makes each worker faster.
    #[default]
    ManyRuns,
    /// One: the zygote skips preparation that does not pay off within a single run.
    OneRun,
}

/// What serves a run in its worker. A run has the same outcome either way: tests compare them.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunPath {
    /// The native library, as far as it recognises the program and its value.
    #[default]
    Native,
    /// Python alone.
    Python,
}

/// One module of the preload list.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PreloadModule {
    /// The module's name.
    pub name: String,
    /// Whether it is an error if the module is missing.
    pub presence: Presence,
}

/// Whether a module is mandatory.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// A missing module is an error.
    Required,
    /// The module is imported if it is installed.
    WhereInstalled,
}

/// Zygote to supervisor, on a worker's monitor.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FromMonitor {
    /// The worker was forked and is entering its jail. Descriptors: the pidfd of the worker, and the
    /// pidfd of the process above it.
    Born {
        /// The process above it.
        beneath: Beneath,
    },
    /// The worker could not be forked or could not be reported.
    NotBorn {
        /// `Step` as a number.
        step: u16,
        /// errno(3).
        errno: i32,
    },
    /// The worker's main process ended. The monitor's end of file follows once no process of the
    /// worker is left.
    Exited {
        /// How it ended.
        exit: Exit,
        /// When its parent learned that: the supervisor reads the report later. The clock is the one that
        /// no time namespace shifts.
        at: SystemTime,
    },
}

/// The process above a worker's main process. It adopts the worker's orphans and ends all of the
/// worker's processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beneath {
    /// Process 1 of the worker's pid namespace. When it is killed, the kernel kills the others.
    Init,
    /// Without namespaces: a process of the zygote that kills the others itself when the other end of
    /// the monitor is shut down. It must not be killed.
    Reaper,
}

impl FromMonitor {
    /// The report of an end that the caller has just learned of.
    pub fn exited(exit: Exit) -> Self {
        let at = SystemTime::now();
        Self::Exited { exit, at }
    }

    /// The report of a worker that was not born.
    pub fn not_born(Failure { step, errno }: Failure) -> Self {
        Self::NotBorn {
            step: step as u16,
            errno: errno as i32,
        }
    }
}
