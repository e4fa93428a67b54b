//! What an outcome reports besides its end.

use std::fmt;
use std::time::Duration;

use serde::{Serialize, Serializer};

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

/// What a run used, measured from outside. `None` where this host has nothing that measures it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Usage {
    /// Time on the clock, from handing over the code to its end.
    pub wall: Duration,
    /// Processor time of all its processes, user and system.
    pub cpu: Duration,
    /// Most memory of all processes together, bytes.
    pub peak_memory_bytes: Option<u64>,
    /// Most processes and threads at once.
    pub peak_pids: Option<u64>,
    /// Bytes written to files.
    pub written_bytes: Option<u64>,
    /// Bytes written to stdout and stderr, those over the limit included.
    pub output_bytes: u64,
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
        }
        Json {
            wall_ms: milliseconds(self.wall),
            cpu_ms: milliseconds(self.cpu),
            peak_memory_bytes: self.peak_memory_bytes,
            peak_pids: self.peak_pids,
            written_bytes: self.written_bytes,
            output_bytes: self.output_bytes,
        }
        .serialize(serializer)
    }
}

/// Milliseconds to the microsecond: a run may take less than one.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// What was verified from outside before guest code ran, not what was configured.
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
    /// What was tried: a system call or an audit event.
    pub operation: String,
    /// On what: a path, an address.
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
