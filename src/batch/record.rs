//! Parses a line of a result file, as far as resuming needs.

use std::io::{BufReader, Read};

use serde::Deserialize;
use serde_json::Value;

use super::TaskId;
use crate::outcome::Status;

/// The status of a task for which no sandbox could be provided.
pub const INFRASTRUCTURE: &str = "infrastructure";

/// The status of a task whose request no sandbox can run.
pub const REFUSED: &str = "refused";

/// The id of a result, and whether its task has finished.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecordLine {
    /// The task's id.
    pub id: TaskId,
    /// Whether the task needs no further run: it ran and was not cancelled, or no sandbox can run it.
    pub finished: bool,
}

/// The members that resuming needs.
#[derive(Deserialize)]
struct Json {
    id: Value,
    status: String,
    exit_code: Option<i64>,
}

/// The reason why a line is not a result.
#[derive(Debug, thiserror::Error)]
#[error("it is not a result of `sandfork map`: {0}")]
pub struct RecordLineError(String);

impl RecordLine {
    /// Parses a line.
    ///
    /// # Errors
    ///
    /// If it is not a line that `sandfork map` writes.
    pub fn parse(line: &[u8]) -> Result<Self, RecordLineError> {
        Self::of(serde_json::from_slice(line))
    }

    /// Parses a line of any length with bounded memory.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), or if the line cannot be read.
    pub fn read(line: impl Read) -> Result<Self, RecordLineError> {
        Self::of(serde_json::from_reader(BufReader::new(line)))
    }

    fn of(json: serde_json::Result<Json>) -> Result<Self, RecordLineError> {
        let json = json.map_err(|error| RecordLineError(error.to_string()))?;
        let no_id = || RecordLineError("its id is neither a text nor a whole number".to_owned());
        let id = TaskId::from_json(&json.id).ok_or_else(no_id)?;
        let again = [INFRASTRUCTURE, Status::Interrupted.as_str()];
        let finished = !again.contains(&json.status.as_str());
        // Resuming deletes unfinished results, so no other line may be mistaken for one.
        if !finished && json.exit_code.is_none() {
            let missing = "missing field `exit_code`".to_owned();
            return Err(RecordLineError(missing));
        }
        Ok(Self { id, finished })
    }

    /// Returns whether an incomplete line can be the start of a result.
    pub fn may_begin_with(torn: &[u8]) -> bool {
        !matches!(after_status(torn), Err(Mismatch::Other))
    }
}

/// The reason why bytes do not match a literal.
enum Mismatch {
    /// They are a prefix of it.
    Short,
    /// They differ from it.
    Other,
}

/// Returns the rest after the first members of a result, in the order in which they are written.
fn after_status(text: &[u8]) -> Result<&[u8], Mismatch> {
    let id = after(text, b"{\"id\":")?;
    let next = after(after_id(id)?, b",\"")?;
    let next = match after(next, b"attempts\":") {
        Ok(attempts) => after(after_digits(attempts)?, b",\"")?,
        Err(Mismatch::Other) => next,
        Err(Mismatch::Short) => return Err(Mismatch::Short),
    };
    after(next, b"status\":\"")
}

fn after<'t>(text: &'t [u8], literal: &[u8]) -> Result<&'t [u8], Mismatch> {
    text.strip_prefix(literal).ok_or({
        if literal.starts_with(text) {
            Mismatch::Short
        } else {
            Mismatch::Other
        }
    })
}

fn after_id(text: &[u8]) -> Result<&[u8], Mismatch> {
    match text.split_first() {
        None => Err(Mismatch::Short),
        Some((b'"', text)) => after_text(text),
        Some(_) => after_digits(text.strip_prefix(b"-").unwrap_or(text)),
    }
}

/// Returns the rest after at least one digit.
fn after_digits(text: &[u8]) -> Result<&[u8], Mismatch> {
    match text.iter().position(|byte| !byte.is_ascii_digit()) {
        None => Err(Mismatch::Short),
        Some(0) => Err(Mismatch::Other),
        Some(end) => Ok(&text[end..]),
    }
}

/// Returns the rest after the closing quote of a JSON string.
fn after_text(text: &[u8]) -> Result<&[u8], Mismatch> {
    let mut bytes = text.iter().enumerate();
    while let Some((index, byte)) = bytes.next() {
        match byte {
            b'"' => return Ok(&text[index + 1..]),
            b'\\' => _ = bytes.next(),
            _ => {}
        }
    }
    Err(Mismatch::Short)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(line: &str) -> RecordLine {
        RecordLine::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn lost_and_interrupted_tasks_are_not_finished() {
        for (status, finished) in [
            ("ok", true),
            ("exception", true),
            ("memory-limit", true),
            ("refused", true),
            ("infrastructure", false),
            ("interrupted", false),
        ] {
            let line = format!(r#"{{"id": 7, "status": "{status}", "exit_code": 0}}"#);
            let id = TaskId::from(7);
            assert_eq!(parse(&line), RecordLine { id, finished });
        }
    }

    #[test]
    fn other_lines_are_rejected() {
        for line in [
            "",
            "{}",
            r#"{"id": "a", "code": "pass"}"#,
            r#"{"id": "a", "status": "ok""#,
            r#"{"id": null, "status": "ok"}"#,
            r#"{"id": "a", "status": 1}"#,
            r#"{"id": "a", "status": "interrupted"}"#,
            "\0\0\0\0",
        ] {
            let refused = RecordLine::parse(line.as_bytes()).unwrap_err().to_string();
            assert!(
                refused.starts_with("it is not a result of `sandfork map`"),
                "{line}: {refused}"
            );
        }
    }

    #[test]
    fn prefix_of_a_result_may_begin_one() {
        for line in [
            r#"{"id":"a \" \\","status":"ok","exit_code":0}"#,
            r#"{"id":-17,"attempts":4,"status":"infrastructure","exit_code":125}"#,
        ] {
            for end in 0..=line.len() {
                assert!(
                    RecordLine::may_begin_with(&line.as_bytes()[..end]),
                    "{line}: {end}"
                );
            }
        }
    }

    #[test]
    fn other_prefixes_are_rejected() {
        for text in [
            "a-token-without-newline",
            "[",
            " {",
            r#"{ "id":"#,
            r#"{"id":1,"code":"print(1)"}"#,
            r#"{"id":1,"attempts":4,"code""#,
            r#"{"id":null"#,
            r#"{"id":-,"#,
            r#"{"id":1.5,"status":"ok"}"#,
            r#"{"id":"a"}"#,
            r#"{"status":"ok""#,
        ] {
            assert!(!RecordLine::may_begin_with(text.as_bytes()), "{text}");
        }
    }
}
