//! A batch: many tasks on one connection, each in a fresh worker.

use std::collections::BTreeMap;
use std::num::NonZeroU16;

use serde::{Deserialize, Serialize};

use super::{ErrorWord, PolicyChoice, Python, Told};
use crate::outcome::{Enforced, PolicyIdentity};
use crate::protocol::Value;

/// What a batch is to be.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct OpenBatch {
    /// [`VERSION`](crate::protocol::VERSION).
    pub version: u32,
    /// The policy of all its tasks.
    pub policy: PolicyChoice,
    /// Keys of the policy that are other than it says: `limits.wall=2s`.
    #[serde(default)]
    pub set: Vec<String>,
    /// How the caller's environment differs from the supervisor's: a value, or nothing where it
    /// lacks the variable.
    #[serde(default)]
    pub environ: BTreeMap<String, Option<String>>,
    /// How many run at once; as many as there are processors without it, and never more than the host
    /// has room for.
    #[serde(default)]
    pub jobs: Option<NonZeroU16>,
    /// In which order the results come.
    #[serde(default)]
    pub order: TaskOrder,
}

/// In which order results come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskOrder {
    /// Each as soon as it is there.
    #[default]
    Finished,
    /// As the tasks were sent.
    Given,
}

/// What is said of a task beside its line.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct TaskHeader {
    /// Repeated in the answers. The line's own `id` is not.
    pub id: u64,
    /// Name of the code that tracebacks show.
    #[serde(default)]
    pub filename: Option<String>,
}

/// A batch that has begun.
#[derive(Clone, Debug, Serialize)]
pub struct Mapping {
    /// [`VERSION`](crate::protocol::VERSION).
    pub version: u32,
    /// How many tasks run at once.
    pub jobs: usize,
    /// How many tasks may be sent whose results have not come.
    pub window: usize,
    /// Under which policy.
    pub policy: PolicyIdentity,
    /// The guests' interpreter.
    pub python: Python,
    /// Limits by their keys in the policy: seconds, bytes, counts.
    pub limits: BTreeMap<&'static str, f64>,
}

/// How a task ended.
#[derive(Clone, Debug, Serialize)]
pub struct TaskOutcome {
    /// Of the task.
    pub id: u64,
    /// How often it was tried: more than once only where it got no sandbox before.
    pub attempts: u32,
    /// What held it: each task has a worker of its own.
    pub enforced: Enforced,
    /// The rest of the outcome, without output, value, and what [`Mapping`] tells.
    pub outcome: Told,
    /// The value of its last expression. It has no buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// A task that got no sandbox.
#[derive(Clone, Debug, Serialize)]
pub struct TaskLoss {
    /// Of the task.
    pub id: u64,
    /// How often it was tried.
    pub attempts: u32,
    /// What kind of thing was wrong.
    pub error: ErrorWord,
    /// One sentence that names the thing and the remedy.
    pub message: String,
}
