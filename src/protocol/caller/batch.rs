//! A batch: many tasks on one connection, each in a fresh worker.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::{ErrorCode, Python, SandboxChoice, WireOutcome};
use crate::outcome::{Enforced, PolicyIdentity, Verdict};
use crate::protocol::{Blob, Value};

/// The settings of a batch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct OpenBatch {
    /// [`VERSION`](crate::protocol::VERSION).
    pub version: u32,
    /// The sandbox of all its tasks.
    #[serde(flatten)]
    pub sandbox: SandboxChoice,
    /// How many tasks run at a time. Without it, as many as there are processors. It never exceeds
    /// what the host has room for.
    #[serde(default)]
    pub jobs: Option<NonZeroU16>,
    /// The order of the results.
    #[serde(default)]
    pub order: Order,
}

/// The order of the results.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Each result as soon as it is ready.
    #[default]
    #[serde(rename = "finished")]
    AsFinished,
    /// In the order of the tasks. A slow task holds up those behind it, once there are four
    /// times as many of them as jobs.
    #[serde(rename = "given")]
    AsGiven,
}

/// The properties of a task besides its line.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct TaskHeader {
    /// Repeated in the answers. The line's own `id` is not.
    pub id: u64,
    /// Name of the code that tracebacks show.
    #[serde(default)]
    pub filename: Option<String>,
}

/// The properties of a batch that has started.
#[derive(Clone, Debug, Serialize)]
pub struct Mapping {
    /// [`VERSION`](crate::protocol::VERSION).
    pub version: u32,
    /// How many tasks run at a time.
    pub jobs: usize,
    /// How many tasks may be sent before their results have arrived.
    pub window: usize,
    /// The batch's policy.
    pub policy: PolicyIdentity,
    /// The guests' interpreter.
    pub python: Python,
    /// Limits by their keys in the policy: seconds, bytes, counts.
    pub limits: BTreeMap<&'static str, f64>,
}

/// How a task ended.
#[derive(Clone, Debug, Serialize)]
pub struct TaskOutcome {
    /// The task's number.
    pub id: u64,
    /// The number of attempts. It is above one only if earlier attempts got no sandbox.
    pub attempts: u32,
    /// The layers that held. Each task has a worker of its own.
    pub enforced: Enforced,
    /// The rest of the outcome, without output, value, and the properties in [`Mapping`].
    pub outcome: WireOutcome,
    /// The value of its last expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The value's buffers, which are the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
    /// The result of the comparison with what the task expects.
    #[serde(flatten)]
    pub verdict: Option<Verdict>,
}

/// A task that got no sandbox.
#[derive(Clone, Debug, Serialize)]
pub struct TaskLoss {
    /// The task's number.
    pub id: u64,
    /// The number of attempts.
    pub attempts: u32,
    /// The kind of the error.
    pub error: ErrorCode,
    /// One sentence that names the thing and the remedy.
    pub message: String,
}
