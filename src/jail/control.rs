//! What supervisor and zygote say to each other. Both are trusted; guest code runs in neither.
//!
//! Each message is one datagram of JSON on a `SOCK_SEQPACKET` pair, with descriptors beside it.
//! Every worker has a second such pair, its monitor, on which the zygote reports its birth and its
//! end, so that concurrent runs share no reader and no lock.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::program::ZygoteJail;

/// The most bytes that one message may have.
pub const MAX_MESSAGE: usize = 160 * 1024;

/// Zygote to supervisor, on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FromZygote {
    /// First message: what the interpreter says of itself, as JSON.
    Facts {
        /// As `host::Interpreter::from_facts` reads it.
        json: String,
    },
    /// A step of the jail failed; the process ends.
    Failed {
        /// `Step` as a number.
        step: u16,
        /// errno(3).
        errno: i32,
    },
    /// The interpreter could not be made ready; the process ends.
    Unready(Unready),
    /// Preloaded, warm, frozen: serving.
    Ready {
        /// The modules of the preload list that were really imported.
        preloaded: Vec<String>,
        /// Its namespaces, in none of which a worker may be that is to have its own: what its links in
        /// `/proc/self/ns` say, in the order of [`NAMESPACES`]. Nobody else may read them.
        namespaces: Vec<String>,
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
        /// Which.
        module: String,
        /// The exception's type and message.
        error: String,
    },
    /// Importing left more than one thread, and a process with threads cannot be forked safely.
    Threads {
        /// The module that started them, or `site`.
        module: String,
    },
    /// Something else in the interpreter's start.
    Startup {
        /// The exception's type and message.
        error: String,
    },
}

/// Supervisor to zygote, on the control socket.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ToZygote {
    /// Enter this jail, then prepare. With one descriptor: the lifeline.
    Enter {
        /// The jail.
        jail: Box<ZygoteJail>,
        /// What to do in it.
        python: PythonSetup,
    },
    /// Fork a worker. Descriptors: stdin, stdout, stderr, data, monitor, then cgroup files.
    Spawn {
        /// The processor to start at, where the plan pins workers.
        first_core: usize,
        /// The directory of the host that takes the place of `/work`, at level `landlock`.
        work: Option<PathBuf>,
        /// What its limit on processor time is counted for.
        cpu: CpuSpan,
    },
}

/// What a worker's limit on processor time is counted for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CpuSpan {
    /// The worker's whole life: the kernel holds each process to it too, by `RLIMIT_CPU`.
    Life,
    /// Each cell anew. `RLIMIT_CPU`, which counts from the fork on, is left alone, and the supervisor
    /// holds the limit.
    Cell,
}

/// How the interpreter is prepared once it is in its jail.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct PythonSetup {
    /// Directories added to `sys.path`, after the standard library.
    pub path: Vec<String>,
    /// Modules imported before the first fork.
    pub preload: Vec<PreloadModule>,
    /// What guest code may import: `*`, `name`, `name.*`.
    pub imports: Vec<String>,
    /// How many workers it will have.
    pub lifetime: Lifetime,
    /// Environment variables that are 1 while modules are preloaded, so that their libraries start
    /// no threads, and what the environment says in each worker.
    pub single_threaded: Vec<String>,
}

/// How many workers a zygote will have.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lifetime {
    /// Many: what makes each of them faster is done first.
    #[default]
    ManyRuns,
    /// One: nothing is done that does not pay for itself in a single run.
    OneRun,
}

/// One module of the preload list.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct PreloadModule {
    /// Its name.
    pub name: String,
    /// Whether its absence is an error.
    pub presence: Presence,
}

/// Whether a module must be there.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// Its absence is an error.
    Required,
    /// Imported where it is installed.
    WhereInstalled,
}

/// Zygote to supervisor, on a worker's monitor.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FromMonitor {
    /// The worker was forked and is entering its jail. Descriptors: its pidfd, and that of what
    /// stands above it.
    Born {
        /// What stands above it.
        beneath: Beneath,
    },
    /// It was not.
    NotBorn {
        /// `Step` as a number.
        step: u16,
        /// errno(3).
        errno: i32,
    },
    /// Its main process ended. The monitor's end of file follows once nothing of it is left.
    Exited(Exit),
}

/// The process above a worker's main one, to which its orphans come and which ends them all.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Beneath {
    /// Process 1 of the worker's pid namespace: when it is killed, the kernel kills the others.
    Init,
    /// Where there are no namespaces, a process of the zygote's that kills the others itself when
    /// the monitor's other end is shut down. It must not be killed.
    Reaper,
}

/// How a process ended (wait(2)), as the kernel told its parent.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    /// Code or signal.
    pub status: ExitStatus,
    /// Processor time of the process and the children that it waited for, microseconds.
    pub cpu_us: u64,
    /// Its largest resident set, KiB (`ru_maxrss`).
    pub max_rss_kib: u64,
}

/// Code or signal.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitStatus {
    /// It ended by itself.
    Code(i32),
    /// A signal ended it.
    Signal(i32),
}
