//! The end of one cell or one run, with what it used and which layers held.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use self::value::{Buffers, HeldBuffers, Value, plain};

pub mod exit_code;
pub mod value;

mod ending;
mod layer;
mod level;
mod limits;
mod network;
mod parts;
mod phases;
mod verdict;
mod word_enum;

pub use ending::{Ending, LimitHit, Mechanism, Status};
pub use layer::Layer;
pub use level::Level;
pub use limits::{CpuRule, LimitName, LimitSpec, Limits, Scope, Unit};
pub use network::{Connection, Traffic};
pub(crate) use parts::Lossy;
pub use parts::{Denial, Enforced, ExceptionInfo, PolicyIdentity, Reporter, Usage};
pub use phases::{JailSteps, Phases, microseconds};
pub use verdict::Verdict;
pub use word_enum::UnknownWord;
pub(crate) use word_enum::word_enum;

/// The end of one cell or one run.
///
/// Everything that a guest can do is an outcome. An error exists only if no sandbox could be provided.
/// The guest's own reports (`value`, `error`, what it wrote) are kept apart from what the supervisor
/// and the kernel observed (`status`, `limit`, `usage`, `enforced`). A guest that lies in its reports
/// changes nothing of what was observed.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    ending: Ending,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    value: Option<Value>,
    buffers: Option<HeldBuffers>,
    error: Option<ExceptionInfo>,
    usage: Usage,
    enforced: Enforced,
    denied: Vec<Denial>,
    denied_omitted: u64,
    network: Vec<Connection>,
    policy: PolicyIdentity,
}

/// Constructors, for a supervisor.
impl Outcome {
    /// An outcome without output and usage.
    pub fn new(ending: Ending, policy: PolicyIdentity, enforced: Enforced) -> Self {
        let error = match &ending {
            Ending::ProtocolViolation(how) => {
                Some(ExceptionInfo::new("ProtocolViolation", how.as_str(), ""))
            }
            _ => None,
        };
        Self {
            ending,
            stdout: Vec::new(),
            stderr: Vec::new(),
            value: None,
            buffers: None,
            error,
            usage: Usage::default(),
            enforced,
            denied: Vec::new(),
            denied_omitted: 0,
            network: Vec::new(),
            policy,
        }
    }

    /// Adds the captured stdout and stderr.
    #[must_use]
    pub fn with_output(mut self, stdout: Vec<u8>, stderr: Vec<u8>) -> Self {
        self.stdout = stdout;
        self.stderr = stderr;
        self
    }

    /// Adds the value of the last expression.
    #[must_use]
    pub fn with_value(mut self, value: Option<Value>) -> Self {
        self.value = value;
        self
    }

    /// Adds the buffers of the value.
    #[must_use]
    pub(crate) fn with_buffers(mut self, buffers: Option<HeldBuffers>) -> Self {
        self.buffers = buffers;
        self
    }

    /// Adds an exception, which a limit may have raised in the guest.
    #[must_use]
    pub fn with_error(mut self, error: ExceptionInfo) -> Self {
        self.error = Some(error);
        self
    }

    /// Adds the usage.
    #[must_use]
    pub const fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Appends refused operations, and counts those that are not listed.
    #[must_use]
    pub fn with_denied(mut self, denied: impl IntoIterator<Item = Denial>, omitted: u64) -> Self {
        self.denied.extend(denied);
        self.denied_omitted += omitted;
        self
    }

    /// Adds connections to other hosts.
    #[must_use]
    pub(crate) fn with_network(mut self, connections: Vec<Connection>) -> Self {
        self.network = connections;
        self
    }
}

/// Accessors, for a caller.
impl Outcome {
    /// Whether the run completed, or exited with 0.
    pub const fn is_ok(&self) -> bool {
        matches!(self.ending, Ending::Ok | Ending::Exit(0))
    }

    /// How it ended, in one word.
    pub const fn status(&self) -> Status {
        self.ending.status()
    }

    /// How it ended, with what belongs to that end.
    pub const fn ending(&self) -> &Ending {
        &self.ending
    }

    /// The exit code of the `sandfork` command for this outcome; `docs/cli.md` has the table.
    pub fn exit_code(&self) -> u8 {
        exit_code::of(&self.ending, self.error())
    }

    /// The limit that ended it.
    pub const fn limit(&self) -> Option<LimitHit> {
        match self.ending {
            Ending::Limit(hit) => Some(hit),
            _ => None,
        }
    }

    /// stdout as text, with U+FFFD in place of invalid UTF-8.
    pub fn stdout(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }

    /// stderr as text, with U+FFFD in place of invalid UTF-8.
    pub fn stderr(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr)
    }

    /// stdout as bytes, unchanged.
    pub fn stdout_bytes(&self) -> &[u8] {
        &self.stdout
    }

    /// stderr as bytes, unchanged.
    pub fn stderr_bytes(&self) -> &[u8] {
        &self.stderr
    }

    /// The value of the last expression, as the guest described it.
    pub const fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    /// The buffers that the value refers to.
    pub fn buffers(&self) -> Buffers<'_> {
        let buffers = self.buffers.as_ref();
        // The link has checked that they are as long as the blob announces.
        buffers.map(HeldBuffers::buffers).unwrap_or_default()
    }

    /// Takes the value with its buffers.
    pub(crate) fn take_value(&mut self) -> (Option<Value>, Option<HeldBuffers>) {
        (self.value.take(), self.buffers.take())
    }

    /// The value as JSON that stands alone: `docs/protocol.md` has the notation.
    pub(crate) fn plain_value(&self) -> Option<serde_json::Value> {
        let value = self.value.as_ref()?;
        Some(plain(value, &self.buffers()))
    }

    /// The uncaught exception. It is also present beside a limit, if the guest died of the
    /// exception that the limit raised in it (`MemoryError`, `KeyboardInterrupt`), and beside a
    /// protocol violation, where it describes the violation.
    pub const fn error(&self) -> Option<&ExceptionInfo> {
        self.error.as_ref()
    }

    /// The resources that the run used.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// The layers that held.
    pub const fn enforced(&self) -> &Enforced {
        &self.enforced
    }

    /// The refused operations that were observed, at most 64: first what the guest's exception tells of, then
    /// the limit that was reached, then what the kernel counted, and the connections that were refused.
    pub fn denied(&self) -> &[Denial] {
        &self.denied
    }

    /// How many refusals [`denied`](Self::denied) leaves out.
    pub const fn denied_omitted(&self) -> u64 {
        self.denied_omitted
    }

    /// The connections to other hosts, and those that were refused, if the policy has hosts. Of very many, only some:
    /// [`Usage::connections`] counts all.
    pub fn network(&self) -> &[Connection] {
        &self.network
    }

    /// The policy under which it ran.
    pub const fn policy(&self) -> &PolicyIdentity {
        &self.policy
    }
}

/// An outcome as an object: without what is optional, it is that of a message to a caller.
#[derive(Serialize)]
pub(crate) struct OutcomeJson<'a> {
    status: Status,
    exit_code: u8,
    limit: Option<LimitHit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout: Option<Lossy<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<Lossy<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<serde_json::Value>,
    error: Option<&'a ExceptionInfo>,
    usage: &'a Usage,
    #[serde(skip_serializing_if = "Option::is_none")]
    enforced: Option<&'a Enforced>,
    denied: &'a [Denial],
    denied_omitted: u64,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    network: &'a [Connection],
    #[serde(skip_serializing_if = "Option::is_none")]
    policy: Option<&'a PolicyIdentity>,
}

impl<'a> OutcomeJson<'a> {
    pub(crate) fn of(outcome: &'a Outcome) -> Self {
        Self {
            status: outcome.status(),
            exit_code: outcome.exit_code(),
            limit: outcome.limit(),
            stdout: None,
            stderr: None,
            value: None,
            error: outcome.error(),
            usage: &outcome.usage,
            enforced: None,
            denied: &outcome.denied,
            denied_omitted: outcome.denied_omitted,
            network: &outcome.network,
            policy: None,
        }
    }
}

/// The object of `sandfork run --json`.
impl Serialize for Outcome {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        OutcomeJson {
            stdout: Some(Lossy(&self.stdout)),
            stderr: Some(Lossy(&self.stderr)),
            value: Some(self.plain_value().unwrap_or_default()),
            enforced: Some(&self.enforced),
            policy: Some(&self.policy),
            ..OutcomeJson::of(self)
        }
        .serialize(serializer)
    }
}
