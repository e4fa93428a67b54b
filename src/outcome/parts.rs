//! The parts of an outcome other than its ending.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::phases::Phases;
use super::{Layer, Level};

/// An uncaught exception, as the guest described it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExceptionInfo {
    /// The name of the exception's class.
    pub name: String,
    /// The exception's `str()`.
    pub message: String,
    /// The traceback as Python prints it, with guest frames only.
    pub traceback: String,
}

impl ExceptionInfo {
    /// Creates an exception from its class name, message and traceback.
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

/// The resources that a run used, as the kernel and the supervisor counted them. A member is `None` if this
/// host cannot measure it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Usage {
    /// Wall time from sending the code to the end of the guest's main process. It does not include
    /// forking and jailing the worker.
    #[serde(rename = "wall_ms", serialize_with = "in_milliseconds")]
    pub wall: Duration,
    /// CPU time of all processes, user and system. With a cgroup it includes the worker's set-up, so it
    /// can exceed `wall`. Without a cgroup it is the time that getrusage(2) reports for the main process
    /// and the children that it waited for, or the time that the watchdog saw, if that is more.
    #[serde(rename = "cpu_ms", serialize_with = "in_milliseconds")]
    pub cpu: Duration,
    /// Peak memory of all processes together in bytes, as charged to the cgroup, including files in
    /// `/work` and `/tmp`. Without a cgroup, the largest resident set, which also counts memory shared
    /// with the zygote.
    pub peak_memory_bytes: Option<u64>,
    /// The peak number of processes and threads.
    pub peak_pids: Option<u64>,
    /// Bytes that `/work`, `/tmp` and `/dev/shm` held at the end.
    pub written_bytes: Option<u64>,
    /// Bytes read from stdout and stderr, never more than `limits.output`.
    pub output_bytes: u64,
    /// Number of connections to other hosts that were started or refused.
    #[serde(skip_serializing_if = "is_zero")]
    pub connections: u64,
    /// Bytes sent to other hosts.
    #[serde(skip_serializing_if = "is_zero")]
    pub sent_bytes: u64,
    /// Bytes received from other hosts.
    #[serde(skip_serializing_if = "is_zero")]
    pub received_bytes: u64,
    /// The time of each phase. Only the JSON of a run has it, not that of a session's cell.
    #[serde(skip_serializing_if = "Phases::is_session_cell")]
    pub phases: Phases,
}

impl Usage {
    /// Returns the wall time in milliseconds, as in JSON.
    pub(crate) fn wall_ms(&self) -> f64 {
        milliseconds(self.wall)
    }
}

/// Bytes that are written as text, with U+FFFD in place of invalid UTF-8. They are written in pieces, because a
/// converted copy of a guest's output could be large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lossy<'a>(pub &'a [u8]);

impl Lossy<'_> {
    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Lossy<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            f.write_str(chunk.valid())?;
            if !chunk.invalid().is_empty() {
                f.write_char(char::REPLACEMENT_CHARACTER)?;
            }
        }
        Ok(())
    }
}

impl Serialize for Lossy<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// serde requires these signatures.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn in_milliseconds<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_f64(milliseconds(*time))
}

/// Converts to milliseconds with microsecond precision, because a run may take less than a millisecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// The layers that were verified before guest code ran, as opposed to those that were configured.
///
/// The supervisor checks every layer but Landlock from outside, in `/proc/PID` of the worker (proc(5)).
/// The kernel does not show a process's Landlock domain to other processes. The worker's set-up code
/// therefore reports a complete jail only after it has seen a refusal that only Landlock causes.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Enforced {
    /// The level that the layers add up to.
    pub level: Level,
    /// The verified layers, starting with the outermost.
    pub layers: Vec<Layer>,
}

/// Formats as `full: namespaces, mounts, ...`.
impl fmt::Display for Enforced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.level)?;
        for (number, layer) in self.layers.iter().enumerate() {
            write!(f, "{} {layer}", if number == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

/// A refused operation, and the setting that would allow it.
///
/// Equal refusals are one denial with a count. A report of the guest proves nothing: a hostile guest may
/// report operations that it never tried, so that the caller allows them.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Denial {
    /// The operation: `fork`, `memory`, `limit`, `connect` to a host, `socket` or `system call`; or, from an exception
    /// of the guest, `import`, `access` to a path or `run` a program.
    pub operation: String,
    /// The target of the operation: a path, a module, the limit that was reached, or the name of a system call. `None`
    /// for a system call that is known only from an exception of the guest, which does not name it.
    pub target: Option<String>,
    /// The error that the guest got. `None` if it was killed.
    pub errno: Option<i32>,
    /// The layer that refused the operation. `None` if that was not a layer but the list of imports, a deadline of the
    /// supervisor, the interpreter, or the permissions of a host file.
    pub layer: Option<Layer>,
    /// The guest's source file that tried the operation, as the guest reported it.
    pub file: Option<String>,
    /// The line in that file.
    pub line: Option<u32>,
    /// The policy key that allows the operation. `None` if no key does.
    pub key: Option<String>,
    /// The argument of `--set` that allows the operation, such as `filesystem.read=/srv/data`. Also `None` if the user
    /// has to choose the value of the key.
    pub set: Option<String>,
    /// Whether the host has the path, which the guest did not see. `None` if the host was not checked or the result is
    /// uncertain. A path that is missing on the host is not a denial.
    pub on_host: Option<bool>,
    /// The reason why a connection was refused, a keyword that `docs/network.md` explains. `None` for all other
    /// operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The number of times that the operation was refused.
    pub count: u64,
    /// The source of this report.
    pub reported_by: Reporter,
}

impl Denial {
    /// The operation of a memory allocation that failed in a run that no limit ended.
    pub(crate) const MEMORY: &'static str = "memory";

    /// Creates a denial with only its operation and reporter.
    pub fn new(operation: impl Into<String>, reported_by: Reporter) -> Self {
        Self {
            operation: operation.into(),
            target: None,
            errno: None,
            layer: None,
            file: None,
            line: None,
            key: None,
            set: None,
            on_host: None,
            reason: None,
            count: 1,
            reported_by,
        }
    }
}

/// The party that reported a denial.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reporter {
    /// The worker.
    Guest,
    /// The kernel, which reported to the supervisor.
    Kernel,
    /// The supervisor.
    Supervisor,
}

/// The name and hash of a run's policy.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PolicyIdentity {
    /// The policy's name.
    pub name: String,
    /// The SHA-256 of the effective policy. Two runs with equal hashes ran under the same policy.
    pub sha256: String,
}
