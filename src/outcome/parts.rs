//! The parts of an outcome besides its end.

use std::fmt::{self, Write as _};
use std::time::Duration;

use serde::{Serialize, Serializer};

use super::phases::Phases;
use super::{Layer, Level};

/// An uncaught exception, as the guest described it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct ExceptionInfo {
    /// The name of its class.
    pub name: String,
    /// The exception's `str()`.
    pub message: String,
    /// The traceback as Python prints it, guest frames only.
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

/// What a run used, as the kernel and the supervisor counted it. `None` if this host has no way to
/// measure it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Usage {
    /// Wall time, from handing over the code to the end of the guest's main process. It does not
    /// include forking and jailing the worker.
    #[serde(rename = "wall_ms", serialize_with = "in_milliseconds")]
    pub wall: Duration,
    /// Processor time of all processes, user and system. With a cgroup it includes the worker's own
    /// set-up, so it can exceed `wall`. Without one it is what getrusage(2) reports for the main
    /// process and the children it waited for, or more if the watchdog saw more.
    #[serde(rename = "cpu_ms", serialize_with = "in_milliseconds")]
    pub cpu: Duration,
    /// Peak memory of all processes together, bytes: what was charged to the cgroup, including files
    /// in `/work` and `/tmp`. Without a cgroup, the largest resident set, which also counts memory
    /// shared with the zygote.
    pub peak_memory_bytes: Option<u64>,
    /// The peak number of processes and threads.
    pub peak_pids: Option<u64>,
    /// Bytes that `/work`, `/tmp` and `/dev/shm` held at the end.
    pub written_bytes: Option<u64>,
    /// Bytes read from stdout and stderr, never more than `limits.output`.
    pub output_bytes: u64,
    /// Connections to other hosts that were begun, and refusals.
    #[serde(skip_serializing_if = "is_zero")]
    pub connections: u64,
    /// Bytes sent to other hosts.
    #[serde(skip_serializing_if = "is_zero")]
    pub sent_bytes: u64,
    /// Bytes received from other hosts.
    #[serde(skip_serializing_if = "is_zero")]
    pub received_bytes: u64,
    /// The time of each phase. Present in the JSON of a run, and not of a session's cell.
    #[serde(skip_serializing_if = "Phases::are_of_a_cell")]
    pub phases: Phases,
}

impl Usage {
    /// The wall time in milliseconds, as in JSON.
    pub(crate) fn wall_ms(&self) -> f64 {
        milliseconds(self.wall)
    }
}

/// Bytes as text, with U+FFFD in place of invalid UTF-8. Written in pieces: a copy of a guest's output may be large.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lossy<'a>(pub &'a [u8]);

impl Lossy<'_> {
    /// Whether there are none.
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

/// Milliseconds with microsecond precision: a run may take less than one millisecond.
fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 1e6).round() / 1e3
}

/// What was verified before guest code ran, not what was configured.
///
/// The supervisor reads every layer but Landlock from outside, from what the kernel reports about the
/// worker in `/proc/PID` (proc(5)). The kernel reports a process's Landlock domain to no other
/// process. For Landlock, the worker's set-up code must see a refusal that only Landlock gives, or it
/// does not report that its jail is complete.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Enforced {
    /// The level that the layers add up to.
    pub level: Level,
    /// The layers that hold, starting with the outermost.
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

/// An operation that was refused, and what would allow it.
///
/// Equal refusals are one denial with a count. What the guest reports proves nothing: a hostile guest may
/// report what it never tried, to have its caller grant it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Denial {
    /// What was tried: `fork`, `memory`, `limit`, `connect` to a host, `socket`, `system call`, or what an exception of the
    /// guest tells of: `import`, `access` to a path, `run` a program.
    pub operation: String,
    /// The target of the operation: a path, a module, the limit that was reached, the name of a system call. None for a
    /// call that only an exception of the guest tells of, without its name.
    pub target: Option<String>,
    /// The error that the guest got; none if it was killed.
    pub errno: Option<i32>,
    /// The layer that refused it. None if it is no layer: the list of imports, a clock of the supervisor, the
    /// interpreter, or a permission of the host's file.
    pub layer: Option<Layer>,
    /// The guest's file in which it was tried. Always the guest's report.
    pub file: Option<String>,
    /// The line in that file.
    pub line: Option<u32>,
    /// The key of the policy that allows it. None if no key does.
    pub key: Option<String>,
    /// The argument of `--set` that allows it, such as `filesystem.read=/srv/data`. None also where the value of
    /// the key is for its user to decide.
    pub set: Option<String>,
    /// Whether the host has the path that was not shown. None if the host was not asked or has no certain
    /// answer. A path that the host lacks is no denial.
    pub on_host: Option<bool>,
    /// Why a connection was refused, in one word that `docs/network.md` explains. None for all other operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// How often it was refused.
    pub count: u64,
    /// The source of this report.
    pub reported_by: Reporter,
}

impl Denial {
    /// More memory, which a process of the run did not get although no limit ended the run.
    pub(crate) const MEMORY: &'static str = "memory";

    /// A denial that nothing more is known of.
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

/// The source of a report of a denial.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reporter {
    /// The worker.
    Guest,
    /// The kernel, to the supervisor.
    Kernel,
    /// The supervisor.
    Supervisor,
}

/// The policy of a run.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct PolicyIdentity {
    /// The policy's name.
    pub name: String,
    /// The hash of the effective policy. Two runs with equal hashes ran under the same policy.
    pub sha256: String,
}
