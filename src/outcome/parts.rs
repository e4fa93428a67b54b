//! What an outcome reports besides its end.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::phases::Phases;
use crate::plan::Layer;
use crate::policy::Level;
use crate::protocol::{Denied, GuestError};

/// An uncaught exception, as the guest described it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExceptionInfo {
    /// Name of its class.
    pub name: String,
    /// `str()` of it.
    pub message: String,
    /// As Python prints it, guest frames only.
    pub traceback: String,
}

impl ExceptionInfo {
    /// An exception of this class, message and traceback.
    pub fn new(
        name: impl Into<String>,
        message: impl Into<String>,
        traceback: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            message: message.into(),
            traceback: traceback.into(),
        }
    }
}

impl From<GuestError> for ExceptionInfo {
    fn from(error: GuestError) -> Self {
        Self::new(error.name, error.message, error.traceback)
    }
}

/// What a run used, by the kernel's counts and the supervisor's. `None` where this host has nothing
/// that measures it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Time on the clock, from handing over the code to the end of the guest's main process. Forking
    /// and jailing the worker come before.
    pub wall: Duration,
    /// Processor time of all its processes, user and system. With a cgroup, the worker's own set-up
    /// is in it, so that it can be more than `wall`; without one, what getrusage(2) tells of the main
    /// process and the children it waited for, or more where the watchdog saw more.
    pub cpu: Duration,
    /// Most memory of all processes together, bytes: what was charged to the cgroup, files in `/work`
    /// and `/tmp` included. Without one, the largest resident set, which counts what is shared with
    /// the zygote too.
    pub peak_memory_bytes: Option<u64>,
    /// Most processes and threads at once.
    pub peak_pids: Option<u64>,
    /// Bytes that `/work`, `/tmp` and `/dev/shm` held at the end.
    pub written_bytes: Option<u64>,
    /// Bytes taken from stdout and stderr, never more than `limits.output`.
    pub output_bytes: u64,
    /// Where the time went. In the JSON of a run, and not of a session's cell.
    pub phases: Phases,
}

impl Serialize for Usage {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Json {
            wall_ms: f64,
            cpu_ms: f64,
            peak_memory_bytes: Option<u64>,
            peak_pids: Option<u64>,
            written_bytes: Option<u64>,
            output_bytes: u64,
            #[serde(skip_serializing_if = "Option::is_none")]
            phases: Option<Phases>,
        }
        Json {
            wall_ms: milliseconds(self.wall),
            cpu_ms: milliseconds(self.cpu),
            peak_memory_bytes: self.peak_memory_bytes,
            peak_pids: self.peak_pids,
            written_bytes: self.written_bytes,
            output_bytes: self.output_bytes,
            phases: Some(self.phases).filter(Phases::are_of_a_run),
        }
        .serialize(serializer)
    }
}

/// Milliseconds to the microsecond: a run may take less than one.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// What was verified before guest code ran, not what was configured.
///
/// All but Landlock is read from outside, from what the kernel says of the worker in `/proc/PID`
/// (proc(5)). The kernel tells nobody of a process's Landlock domain: there the worker's set-up code
/// must see a refusal that only Landlock gives, or it does not report that its jail stands.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Enforced {
    /// The level that the layers make.
    pub level: Level,
    /// The layers that hold, from the outermost.
    pub layers: Vec<Layer>,
}

/// `full: namespaces, mounts, ...`.
impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.level)?;
        for (number, layer) in self.layers.iter().enumerate() {
            write!(f, "{} {layer}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// One operation that was refused.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Denial {
    /// What was tried. The kernel tells of `fork`; a guest says `file access`, or `system call` where
    /// its exception names no file.
    pub operation: String,
    /// On what: a path.
    pub target: Option<String>,
    /// The error that the guest got; none where it was killed.
    pub errno: Option<i32>,
    /// Who says so. The guest's word proves nothing.
    pub reported_by: Reporter,
}

impl Denial {
    /// A denial that the kernel told of.
    pub fn by_kernel(operation: impl Into<String>) -> Self {
        Self {
            operation: operation.into(),
            target: None,
            errno: None,
            reported_by: Reporter::Kernel,
        }
    }
}

impl From<Denied> for Denial {
    fn from(denied: Denied) -> Self {
        Self {
            operation: denied.operation,
            target: denied.target,
            errno: denied.errno,
            reported_by: Reporter::Guest,
        }
    }
}

/// Who told of a denial.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reporter {
    /// The worker.
    Guest,
    /// The kernel, to the supervisor.
    Kernel,
}

/// Which policy a run was under.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PolicyIdentity {
    /// Its name.
    pub name: String,
    /// Hash of the effective policy, so that two runs can be known to be under the same one.
    pub sha256: String,
}
