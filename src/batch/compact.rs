//! Serializes results in their short form.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::Value;

use super::{Done, TaskId};
use crate::outcome::{LimitName, Lossy, Outcome, Verdict};

/// Serializes status, output, value, error, and little more. Omits empty members.
pub struct Compact<'a>(pub &'a Done);

#[derive(Serialize)]
struct Json<'a> {
    id: &'a TaskId,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    status: &'static str,
    exit_code: u8,
    #[serde(flatten)]
    verdict: Option<&'a Verdict>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<LimitName>,
    stdout: Lossy<'a>,
    #[serde(skip_serializing_if = "Lossy::is_empty")]
    stderr: Lossy<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<NameAndMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    wall_ms: Option<f64>,
}

#[derive(Serialize)]
struct NameAndMessage<'a> {
    name: &'a str,
    message: Cow<'a, str>,
}

impl Serialize for Compact<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(done) = self;
        let outcome = done.outcome();
        let guest_error = outcome.and_then(|outcome| outcome.error());
        let error = guest_error.map(|error| NameAndMessage {
            name: &error.name,
            message: error.message.as_str().into(),
        });
        let host_error = done.error().map(|error| NameAndMessage {
            name: error.kind().class_name(),
            message: error.to_string().into(),
        });
        let exit_code = match done.error() {
            Some(error) => error.exit_code(),
            None => outcome.map_or(0, Outcome::exit_code),
        };
        Json {
            id: done.id(),
            attempts: (done.attempts() > 1).then_some(done.attempts()),
            status: done.status(),
            exit_code,
            verdict: done.verdict.as_ref(),
            limit: outcome.and_then(|outcome| Some(outcome.limit()?.name)),
            stdout: Lossy(outcome.map_or(b"", Outcome::stdout_bytes)),
            stderr: Lossy(outcome.map_or(b"", Outcome::stderr_bytes)),
            value: outcome.and_then(Outcome::plain_value),
            error: error.or(host_error),
            wall_ms: outcome.map(|outcome| outcome.usage().wall_ms()),
        }
        .serialize(serializer)
    }
}
