//! The messages of a batch: many tasks on one connection, each in a fresh worker.

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
    /// The sandbox of all tasks.
    #[serde(flatten)]
    pub sandbox: SandboxChoice,
    /// The number of tasks to run at a time, by default the number of processors. The supervisor lowers it
    /// to the capacity of the host.
    #[serde(default)]
    pub jobs: Option<NonZeroU16>,
    /// The order of the results.
    #[serde(default)]
    pub order: Order,
}

/// The order of the results.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub enum Order {
    /// Each result is sent as soon as it is ready.
    #[default]
    #[serde(rename = "finished")]
    AsFinished,
    /// Results are sent in the order of the tasks. A slow task blocks later ones once four times as many of
    /// them as jobs are waiting.
    #[serde(rename = "given")]
    AsGiven,
}

/// The properties of a task other than its line.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct TaskHeader {
    /// Repeated in the replies, unlike the `id` in the line.
    pub id: u64,
    /// The file name of the code in tracebacks.
    #[serde(default)]
    pub filename: Option<String>,
}

/// The properties of a batch that has started.
#[derive(Clone, Debug, Serialize)]
pub struct Mapping {
    /// [`VERSION`](crate::protocol::VERSION).
    pub version: u32,
    /// The number of tasks that run at a time.
    pub jobs: usize,
    /// The number of tasks that the caller may have sent without having received their results.
    pub window: usize,
    /// The batch's policy.
    pub policy: PolicyIdentity,
    /// The interpreter of the guests.
    pub python: Python,
    /// The limits by policy key, in seconds, bytes or counts.
    pub limits: BTreeMap<&'static str, f64>,
}

/// How a task ended.
#[derive(Clone, Debug, Serialize)]
pub struct TaskOutcome {
    /// The task's number.
    pub id: u64,
    /// The number of attempts, more than one only if no sandbox could be provided for earlier attempts.
    pub attempts: u32,
    /// The layers that held in the task's worker.
    pub enforced: Enforced,
    /// The rest of the outcome, without output, value, and the properties in [`Mapping`].
    pub outcome: WireOutcome,
    /// The value of the last expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The buffers of the value, which are the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
    /// The result of comparing the outcome with the expected one.
    #[serde(flatten)]
    pub verdict: Option<Verdict>,
}

/// A task for which no sandbox could be provided.
#[derive(Clone, Debug, Serialize)]
pub struct TaskLoss {
    /// The task's number.
    pub id: u64,
    /// The number of attempts.
    pub attempts: u32,
    /// The kind of the error.
    pub error: ErrorCode,
    /// One sentence that names the problem and the remedy.
    pub message: String,
}
