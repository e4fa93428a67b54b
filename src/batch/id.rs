//! Defines the id that links a result to its task.

use std::fmt;

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

/// The id of a task: a text or an integer, as the caller chose it. `7` and `"7"` are different ids.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize)]
#[serde(untagged)]
pub enum TaskId {
    /// An integer.
    Number(i64),
    /// A text.
    Text(String),
}

impl TaskId {
    /// Converts a JSON value to an id, if it is a 64-bit integer or a non-empty text.
    pub(super) fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::Number(number) => number.as_i64().map(Self::Number),
            Value::String(text) if !text.is_empty() => Some(Self::Text(text.clone())),
            _ => None,
        }
    }

    /// Returns 128 bits of the id's SHA-256, so that millions of ids take 16 bytes each and collisions cannot be
    /// constructed.
    pub(crate) fn digest(&self) -> u128 {
        let hash = match self {
            Self::Number(number) => {
                Sha256::new_with_prefix(b"n").chain_update(number.to_le_bytes())
            }
            Self::Text(text) => Sha256::new_with_prefix(b"t").chain_update(text),
        };
        let bytes = hash.finalize();
        bytes
            .iter()
            .take(16)
            .fold(0, |sum, byte| sum << 8 | u128::from(*byte))
    }
}

impl From<i64> for TaskId {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<&str> for TaskId {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for TaskId {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// Formats the id as JSON, truncated if it is long.
impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 60;
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) if text.chars().nth(SHOWN).is_none() => write!(f, "{text:?}"),
            Self::Text(text) => {
                let start: String = text.chars().take(SHOWN).collect();
                write!(f, "{start:?}...")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn number_and_text_ids_differ() {
        let (number, text) = (TaskId::from(7), TaskId::from("7"));
        assert_ne!(number.digest(), text.digest());
        assert_ne!(TaskId::from(8).digest(), number.digest());
        assert_eq!(TaskId::from("7").digest(), text.digest());
        assert_eq!(json!([number, text]), json!([7, "7"]));
    }

    #[test]
    fn invalid_ids_are_rejected() {
        for value in [
            json!(null),
            json!(""),
            json!(1.5),
            json!(u64::MAX),
            json!([1]),
            json!(true),
        ] {
            assert_eq!(TaskId::from_json(&value), None, "{value}");
        }
        assert_eq!(TaskId::from_json(&json!(-3)), Some(TaskId::from(-3)));
        assert_eq!(TaskId::from_json(&json!("a b")), Some(TaskId::from("a b")));
    }

    #[test]
    fn long_id_is_truncated() {
        assert_eq!(TaskId::from("a\n").to_string(), "\"a\\n\"");
        assert_eq!(
            TaskId::from("é".repeat(61)).to_string(),
            format!("{:?}...", "é".repeat(60))
        );
        assert_eq!(
            TaskId::from("é".repeat(60)).to_string(),
            format!("{:?}", "é".repeat(60))
        );
    }
}
