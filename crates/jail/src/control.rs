//! Messages between supervisor and zygote. Both are trusted; guest code runs in neither.
//!
//! Each message is one datagram of JSON on a `SOCK_SEQPACKET` pair, with descriptors attached. Every worker has a
//! second such pair, its monitor, on which the zygote reports the worker's birth and end. Concurrent runs therefore
//! share neither a reader nor a lock.

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

/// The maximum length of a message, bytes.
pub const MAX_MESSAGE: usize = 160 * 1024;

/// The maximum total length of the module names in [`FromZygote::Ready`], bytes. The rest of that message is shorter
/// than 4 KiB.
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
/// `EPROTO` if the datagram is not a valid message, or the errno of recvmsg(2).
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

/// Messages from zygote to supervisor, on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FromZygote {
    /// The first message: facts that the interpreter reports about itself.
    Facts {
        /// The text that `host::Interpreter::from_facts` parses.
        text: String,
    },
    /// A step of the jail failed. The process exits.
    Failed {
        /// `Step` as a number.
        step: u16,
        /// errno(3).
        errno: i32,
    },
    /// The next module of the preload list is being imported. If no message follows, the import ended the process or
    /// does not return.
    Preloading {
        /// The module's name; `None` after the last module.
        module: Option<String>,
    },
    /// The interpreter could not be made ready. The process exits.
    Unready(Unready),
    /// Modules are preloaded and frozen, and the zygote serves requests.
    Ready {
        /// The modules of the preload list that were imported.
        preloaded: Vec<String>,
        /// The zygote's namespaces: its links in `/proc/self/ns`, in the order of [`NAMESPACES`]. A worker with its own
        /// namespaces must not be in any of these. No other process may read the links.
        namespaces: Vec<String>,
        /// The number of pages that each fork copies eagerly, or the errno(3) that prevents it. `None` in a zygote for
        /// one run.
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
    /// An import left more than one thread, and a multithreaded process cannot be forked safely.
    Threads {
        /// The module that started them, or `site`.
        module: String,
    },
    /// An import left memory that all workers would share and could write to.
    SharedMemory {
        /// The module that holds the memory, or `site`.
        module: String,
    },
    /// Another part of the interpreter's startup failed.
    Startup {
        /// The exception's type and message.
        error: String,
    },
}

/// Messages from supervisor to zygote, on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToZygote {
    /// Enter a jail, then prepare the interpreter. Descriptors: a sealed memfd with the [`ZygotePlan`], the lifeline, a
    /// pidfd of the supervisor, and one memfd for each entry of `lent`.
    Enter {
        /// The length of the plan, bytes.
        length: usize,
        /// The contents of the lent memfds, left by earlier zygotes.
        lent: Vec<Lent>,
    },
    /// Fork a worker. Descriptors: stdin, stdout, stderr, data, monitor, then cgroup files.
    Spawn {
        /// The processor at which the worker's pinning starts, if the plan pins workers.
        first_core: usize,
        /// The host directory that replaces `/work`, at level `landlock`.
        work: Option<PathBuf>,
        /// The scope of the CPU limit.
        cpu: CpuBudgetScope,
        /// The host uid that the worker switches to, one of those that the zygote's user namespace maps for workers.
        uid: Option<u32>,
    },
}

/// The jail and preparation of a zygote. Passed in a memfd, because a policy's paths may not fit into a datagram.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ZygotePlan {
    /// The jail.
    pub jail: ZygoteJail,
    /// How to prepare the interpreter in it.
    pub python: PythonSetup,
}

/// The contents of a memfd that the supervisor lends to a zygote. If the memfd is empty, the zygote fills it for later
/// zygotes.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lent {
    /// Byte code of the guest's Python modules. The memfd is sealed once it is filled.
    Codes,
    /// The font list that matplotlib builds when it is imported.
    Fonts,
}

/// The scope of a worker's CPU limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuBudgetScope {
    /// The worker's whole life. The kernel also enforces the limit on each process by `RLIMIT_CPU`.
    Life,
    /// Each cell separately. The jail does not set `RLIMIT_CPU`, which counts from the fork on; the supervisor enforces
    /// the limit.
    Cell,
}

/// How the interpreter is prepared inside its jail.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PythonSetup {
    /// Directories to add to `sys.path`, after the standard library.
    pub path: Vec<String>,
    /// The directory of a program with several files, first in `sys.path`.
    pub project: Option<String>,
    /// Modules to import before the first fork.
    pub preload: Vec<PreloadModule>,
    /// The modules that guest code may import: `*`, `name`, `name.*`.
    pub imports: Vec<String>,
    /// How many workers the zygote will fork.
    pub lifetime: Lifetime,
    /// The implementation that serves the runs of its workers.
    pub run_path: RunPath,
    /// Environment variables that are set while modules are preloaded, so that their libraries start no threads. Each
    /// worker gets the original values back.
    pub preload_env: Vec<(String, String)>,
}

/// How many workers a zygote will fork.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// Many: the zygote does the preparation that speeds up each worker.
    #[default]
    ManyRuns,
    /// One: the zygote skips preparation that does not pay off within a single run.
    OneRun,
}

/// The implementation that serves a run in its worker. The outcome of a run does not depend on it: tests compare both.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunPath {
    /// The native library, as far as it recognises the program and its value.
    #[default]
    Native,
    /// Python alone.
    Python,
}

/// A module of the preload list.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PreloadModule {
    /// The module's name.
    pub name: String,
    /// Whether a missing module is an error.
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

/// Messages from zygote to supervisor, on a worker's monitor.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FromMonitor {
    /// The worker was forked and is entering its jail. Descriptors: the pidfd of the worker and the pidfd of the
    /// process above it.
    Born {
        /// The kind of the process above it.
        beneath: Beneath,
    },
    /// The worker could not be forked or could not be reported.
    NotBorn {
        /// `Step` as a number.
        step: u16,
        /// errno(3).
        errno: i32,
    },
    /// The worker's main process ended. EOF on the monitor follows once the worker has no process left.
    Exited {
        /// How it ended.
        exit: Exit,
        /// When the parent learned of the end; the supervisor reads the report later. Wall-clock time, which no time
        /// namespace shifts.
        at: SystemTime,
    },
}

/// The process above a worker's main process. It adopts the worker's orphans and ends all of the worker's processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beneath {
    /// Process 1 of the worker's pid namespace. When it is killed, the kernel kills all others.
    Init,
    /// Without namespaces: a process of the zygote that itself kills the others when the supervisor shuts down its end
    /// of the monitor. It must not be killed.
    Reaper,
}

impl FromMonitor {
    /// Returns the report of an end that the caller has just learned of.
    pub fn exited(exit: Exit) -> Self {
        let at = SystemTime::now();
        Self::Exited { exit, at }
    }

    /// Returns the report of a worker that was not born.
    pub fn not_born(Failure { step, errno }: Failure) -> Self {
        Self::NotBorn {
            step: step as u16,
            errno: errno as i32,
        }
    }
}
