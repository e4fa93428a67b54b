//! A line of results, as far as it has to be known to go on behind it.

use serde::Deserialize;
use serde_json::Value;

use super::TaskId;
use crate::outcome::Status;

/// The status of a task for which no sandbox could be provided.
pub const INFRASTRUCTURE: &str = "infrastructure";

/// Which task a result is of, and whether that has had its run.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordLine {
    /// Which task.
    pub id: TaskId,
    /// Whether there is nothing left to do: neither was there no sandbox, nor was it called off.
    pub finished: bool,
}

/// Why a line is no result.
#[derive(Debug, thiserror::Error)]
pub enum RecordLineError {
    /// It is no JSON object with these members.
    #[error("it is no result of `sandfork map`: {0}")]
    Malformed(String),
    /// Its id is none.
    #[error("it is no result of `sandfork map`: its id is neither a text nor a whole number")]
    Id,
}

impl RecordLine {
    /// Reads a line.
    ///
    /// # Errors
    ///
    /// When it is not what `sandfork map` writes.
    pub fn parse(line: &[u8]) -> Result<Self, RecordLineError> {
        #[derive(Deserialize)]
        struct Json {
            id: Value,
            status: String,
        }
        let json: Json = serde_json::from_slice(line)
            .map_err(|error| RecordLineError::Malformed(error.to_string()))?;
        let id = TaskId::from_json(&json.id).ok_or(RecordLineError::Id)?;
        let again = [INFRASTRUCTURE, Status::Interrupted.as_str()];
        let finished = !again.contains(&json.status.as_str());
        Ok(Self { id, finished })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(line: &str) -> RecordLine {
        RecordLine::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn what_was_not_run_is_not_finished() {
        for (status, finished) in [
            ("ok", true),
            ("exception", true),
            ("memory-limit", true),
            ("infrastructure", false),
            ("interrupted", false),
        ] {
            let line = format!(r#"{{"id": 7, "status": "{status}", "stdout": "x"}}"#);
            let id = TaskId::from(7);
            assert_eq!(parse(&line), RecordLine { id, finished });
        }
    }

    #[test]
    fn other_lines_are_no_results() {
        for line in [
            "",
            "{}",
            r#"{"id": "a", "code": "pass"}"#,
            r#"{"id": "a", "status": "ok""#,
            r#"{"id": null, "status": "ok"}"#,
            r#"{"id": "a", "status": 1}"#,
            "\0\0\0\0",
        ] {
            let refused = RecordLine::parse(line.as_bytes()).unwrap_err().to_string();
            assert!(
                refused.starts_with("it is no result of `sandfork map`"),
                "{line}: {refused}"
            );
        }
    }
}
