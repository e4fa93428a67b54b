//! Parses JSON exactly: keeps integers of any size, and rejects duplicate keys. serde_json would read an integer beyond
//! 64 bits as a float, and would keep the last of duplicate keys.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::IgnoredAny;
use serde_json::error::Category;

use crate::error::{Cause, ErrorKind};

/// A JSON value.
#[derive(Clone, Debug, PartialEq)]
pub enum ExactJson {
    Null,
    Bool(bool),
    Number(ExactNumber),
    Text(String),
    List(Vec<Self>),
    Object(BTreeMap<String, Self>),
}

/// A JSON number.
#[derive(Clone, Debug, PartialEq)]
pub enum ExactNumber {
    /// An integer that fits into 128 bits.
    Whole(i128),
    /// A longer integer, as its digits. The comparison decides whether to convert it.
    Long(String),
    /// A number with a fraction or an exponent.
    Float(f64),
}

/// The reason why a line is not a valid value.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ExactJsonError {
    /// The line is not JSON.
    #[error("it is not JSON: {what} at column {column}")]
    Syntax {
        /// The problem.
        what: String,
        /// The column, from 1.
        column: usize,
    },
    /// The line ends too early.
    #[error("it is cut off: the line ends before its JSON object does")]
    Truncated,
    /// An object has a duplicate key.
    #[error("the key `{0}` appears twice")]
    DuplicateKey(String),
}

impl Cause for ExactJsonError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Request
    }
}

/// The maximum nesting depth, which is serde_json's.
const DEEPEST: usize = 128;

impl ExactJson {
    /// Parses a line of JSON.
    pub fn parse(line: &[u8]) -> Result<Self, ExactJsonError> {
        // serde_json checks the syntax, so the reader only needs to find where each token ends.
        serde_json::from_slice::<IgnoredAny>(line).map_err(|error| syntax(&error, 0))?;
        let text = std::str::from_utf8(line).map_err(|error| ExactJsonError::Syntax {
            what: "invalid unicode code point".to_owned(),
            column: error.valid_up_to() + 1,
        })?;
        let mut reader = Reader {
            text,
            at: 0,
            depth: 0,
        };
        reader.value()
    }

    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl fmt::Display for ExactJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Bool(it) => it.fmt(f),
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => quoted(text).fmt(f),
            Self::List(items) => {
                f.write_str("[")?;
                for (number, item) in items.iter().enumerate() {
                    let comma = if number > 0 { "," } else { "" };
                    write!(f, "{comma}{item}")?;
                }
                f.write_str("]")
            }
            Self::Object(members) => {
                f.write_str("{")?;
                for (number, (key, value)) in members.iter().enumerate() {
                    let comma = if number > 0 { "," } else { "" };
                    write!(f, "{comma}{}:{value}", quoted(key))?;
                }
                f.write_str("}")
            }
        }
    }
}

impl fmt::Display for ExactNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Long(digits) => f.write_str(digits),
            // As serde_json writes it: 1.0, 1e+300.
            Self::Float(number) => serde_json::Value::from(*number).fmt(f),
        }
    }
}

fn quoted(text: &str) -> serde_json::Value {
    serde_json::Value::from(text)
}

fn syntax(error: &serde_json::Error, start: usize) -> ExactJsonError {
    if error.classify() == Category::Eof {
        return ExactJsonError::Truncated;
    }
    let text = error.to_string();
    // Drop the line number, which is always 1. The column is reported separately.
    let what = text.split(" at line ").next().unwrap_or(&text).to_owned();
    let column = start + error.column();
    ExactJsonError::Syntax { what, column }
}

/// Reads a text whose syntax has been validated.
struct Reader<'t> {
    text: &'t str,
    at: usize,
    depth: usize,
}

impl<'t> Reader<'t> {
    fn value(&mut self) -> Result<ExactJson, ExactJsonError> {
        match self.next() {
            Some(b'{') => self.object(),
            Some(b'[') => self.list(),
            Some(b'"') => self.string().map(ExactJson::Text),
            _ => self.word(),
        }
    }

    /// Skips separators, and returns the first byte of the next token.
    fn next(&mut self) -> Option<u8> {
        // The syntax check has ensured that commas and colons are in place.
        let between = [' ', '\t', '\r', '\n', ',', ':'];
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start_matches(between).len();
        self.text.as_bytes().get(self.at).copied()
    }

    fn take(&mut self, length: usize) -> &'t str {
        let start = self.at;
        self.at += length;
        &self.text[start..self.at]
    }

    fn enter(&mut self) -> Result<(), ExactJsonError> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(self.syntax_error("recursion limit exceeded"));
        }
        self.at += 1;
        Ok(())
    }

    fn leave(&mut self) {
        self.depth -= 1;
        self.at += 1;
    }

    fn list(&mut self) -> Result<ExactJson, ExactJsonError> {
        self.enter()?;
        let mut items = Vec::new();
        while self.next() != Some(b']') {
            items.push(self.value()?);
        }
        self.leave();
        Ok(ExactJson::List(items))
    }

    fn object(&mut self) -> Result<ExactJson, ExactJsonError> {
        self.enter()?;
        let mut members = BTreeMap::new();
        while self.next() != Some(b'}') {
            let key = self.string()?;
            let value = self.value()?;
            if members.contains_key(&key) {
                return Err(ExactJsonError::DuplicateKey(key));
            }
            members.insert(key, value);
        }
        self.leave();
        Ok(ExactJson::Object(members))
    }

    fn string(&mut self) -> Result<String, ExactJsonError> {
        let (start, rest) = (self.at, &self.text[self.at..]);
        let mut length = 1;
        while let Some(found) = rest[length..].find(['"', '\\']) {
            length += found + 1;
            if rest.as_bytes()[length - 1] == b'"' {
                break;
            }
            // Skip the escaped character, which is one byte long.
            length += 1;
        }
        // Can still fail: the syntax check accepts a lone surrogate.
        serde_json::from_str(self.take(length)).map_err(|error| syntax(&error, start))
    }

    /// Reads a number, `null`, `true` or `false`.
    fn word(&mut self) -> Result<ExactJson, ExactJsonError> {
        let rest = &self.text[self.at..];
        let end = rest.find([',', ']', '}', ' ', '\t', '\r', '\n']);
        let word = self.take(end.unwrap_or(rest.len()));
        let number = match word {
            "null" => return Ok(ExactJson::Null),
            "true" => return Ok(ExactJson::Bool(true)),
            "false" => return Ok(ExactJson::Bool(false)),
            // An integer cannot represent negative zero.
            "-0" => Ok(ExactNumber::Float(-0.0)),
            _ => word.parse().map(ExactNumber::Whole),
        };
        let is_whole = !word.contains(['.', 'e', 'E']);
        let number = match number {
            Ok(whole) => whole,
            Err(_) if is_whole => ExactNumber::Long(word.to_owned()),
            Err(_) => match word.parse::<f64>() {
                Ok(float) if float.is_finite() => ExactNumber::Float(float),
                _ => return Err(self.syntax_error("number out of range")),
            },
        };
        Ok(ExactJson::Number(number))
    }

    fn syntax_error(&self, what: &str) -> ExactJsonError {
        ExactJsonError::Syntax {
            what: what.to_owned(),
            column: self.at + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn parse(text: &str) -> Result<ExactJson, ExactJsonError> {
        ExactJson::parse(text.as_bytes())
    }

    #[test]
    fn json_round_trips() {
        let digits = "9".repeat(1000);
        for text in [
            "null",
            "[]",
            "{}",
            "[true,false,null]",
            r#"{"a":[1,{"b":"x\"y\\"}],"c":-0.5}"#,
            r#"["[,]:{}","\n","\\"]"#,
            "[0,-0.0,1e+300,18446744073709551616,-170141183460469231731687303715884105729]",
            &digits,
        ] {
            assert_eq!(parse(text).unwrap().to_string(), text);
        }
        let spaced = "\t{ \"a\" : [ 1 , 2.5 ],\r\"b\" : { } , \"c\":[ ] }\n";
        let text = r#"{"a":[1,2.5],"b":{},"c":[]}"#;
        assert_eq!(parse(spaced).unwrap().to_string(), text);
        assert_eq!(parse("-0"), parse("-0.0"));
        assert_eq!(parse(r#""\u00e9""#).unwrap().as_text(), Some("é"));
    }

    #[test]
    fn invalid_or_ambiguous_json_is_an_error() {
        let duplicate = |key: &str| Err(ExactJsonError::DuplicateKey(key.to_owned()));
        assert_eq!(parse(r#"{"a": 1, "a": 2}"#), duplicate("a"));
        assert_eq!(parse(r#"[{"b": {"\u0061": 1, "a": 2}}]"#), duplicate("a"));
        for (text, prefix, at) in [
            ("[1e999]", "number out of range", 7),
            (r#"["\ud800"]"#, "unexpected end of hex escape", 0),
            ("[01]", "invalid number", 3),
            ("[1 2]", "expected `,` or `]`", 4),
        ] {
            let Err(ExactJsonError::Syntax { what, column }) = parse(text) else {
                panic!("{text}");
            };
            assert!(what.starts_with(prefix), "{text}: {what}");
            assert!(at == 0 || column == at, "{text}: {column}");
        }
        let nested = |depth| "[".repeat(depth) + &"]".repeat(depth);
        assert!(parse(&nested(DEEPEST)).is_ok());
        assert!(parse(&nested(DEEPEST + 1)).is_err());
        assert_eq!(parse("[1"), Err(ExactJsonError::Truncated));
    }
}
