//! The outcome of one cell or one run: how it ended, what it used, and which layers held.

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

/// The outcome of one cell or one run.
///
/// Everything that a guest can do is an outcome. An error exists only if no sandbox could be provided.
/// What the guest reports (its value, its exception, its output) is kept apart from what the supervisor
/// and the kernel observed (`status`, `limit`, `usage`, `enforced`). A guest that lies in its reports
/// cannot change what was observed.
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

/// Constructors for the supervisor.
impl Outcome {
    /// Creates an outcome without output and usage.
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

    /// Adds the guest's exception, which a limit may have raised.
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

    /// Appends refused operations, and adds the number of those that are not listed.
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

/// Accessors for callers.
impl Outcome {
    /// Returns whether the run completed, or exited with 0.
    pub const fn is_ok(&self) -> bool {
        matches!(self.ending, Ending::Ok | Ending::Exit(0))
    }

    /// Returns how the run ended, in one word.
    pub const fn status(&self) -> Status {
        self.ending.status()
    }

    /// Returns how the run ended, with details.
    pub const fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Returns the exit code of the `sandfork` command for this outcome; `docs/cli.md` has the table.
    pub fn exit_code(&self) -> u8 {
        exit_code::of(&self.ending, self.error())
    }

    /// Returns the limit that ended the run.
    pub const fn limit(&self) -> Option<LimitHit> {
        match self.ending {
            Ending::Limit(hit) => Some(hit),
            _ => None,
        }
    }

    /// Returns stdout as text, with U+FFFD in place of invalid UTF-8.
    pub fn stdout(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stdout)
    }

    /// Returns stderr as text, with U+FFFD in place of invalid UTF-8.
    pub fn stderr(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.stderr)
    }

    /// Returns stdout as bytes, unchanged.
    pub fn stdout_bytes(&self) -> &[u8] {
        &self.stdout
    }

    /// Returns stderr as bytes, unchanged.
    pub fn stderr_bytes(&self) -> &[u8] {
        &self.stderr
    }

    /// Returns the value of the last expression, as the guest described it.
    pub const fn value(&self) -> Option<&Value> {
        self.value.as_ref()
    }

    /// Returns the buffers that the value refers to.
    pub fn buffers(&self) -> Buffers<'_> {
        let buffers = self.buffers.as_ref();
        // The link has checked that the bytes are as long as the blob announces.
        buffers.map(HeldBuffers::buffers).unwrap_or_default()
    }

    /// Takes the value with its buffers.
    pub(crate) fn take_value(&mut self) -> (Option<Value>, Option<HeldBuffers>) {
        (self.value.take(), self.buffers.take())
    }

    /// Returns the value as self-contained JSON, in the notation of `docs/protocol.md`.
    pub(crate) fn plain_value(&self) -> Option<serde_json::Value> {
        let value = self.value.as_ref()?;
        Some(plain(value, &self.buffers()))
    }

    /// Returns the uncaught exception. It is also present with a limit, if the exception that the limit
    /// raised in the guest (`MemoryError`, `KeyboardInterrupt`) ended it, and with a protocol violation,
    /// which it then describes.
    pub const fn error(&self) -> Option<&ExceptionInfo> {
        self.error.as_ref()
    }

    /// Returns the resources that the run used.
    pub const fn usage(&self) -> &Usage {
        &self.usage
    }

    /// Returns the layers that held.
    pub const fn enforced(&self) -> &Enforced {
        &self.enforced
    }

    /// Returns the refused operations that were observed, at most 64: first the one that the guest's exception
    /// reports, then the limit that was reached, then those that the kernel counted, and the refused connections.
    pub fn denied(&self) -> &[Denial] {
        &self.denied
    }

    /// Returns the number of refusals that [`denied`](Self::denied) leaves out.
    pub const fn denied_omitted(&self) -> u64 {
        self.denied_omitted
    }

    /// Returns the connections to other hosts, including refused ones, if the policy names hosts. The list is
    /// bounded; [`Usage::connections`] counts all connections.
    pub fn network(&self) -> &[Connection] {
        &self.network
    }

    /// Returns the policy of the run.
    pub const fn policy(&self) -> &PolicyIdentity {
        &self.policy
    }
}

/// The JSON object of an outcome. Without its optional members, it is the object of a message to a caller.
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

/// Serializes the object of `sandfork run --json`.
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
