//! The keys and values of a line.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::error::Category;

use super::TaskLineError as Error;
use crate::batch::TaskId;
use crate::batch::expect::{Expect, Whitespace};
use crate::outcome::{LimitName, Scope};
use crate::policy::{LimitOverrides, closest, meant};
use crate::supervisor::files::GuestPath;

/// Every key of a task.
const KEYS: [&str; 10] = [
    "id", "code", "file", "program", "args", "files", "stdin", "limits", "policy", "expect",
];

/// The members of an object, with unique keys.
#[derive(Debug)]
pub struct Fields(Vec<(String, Value)>);

impl Fields {
    /// Parses an object whose keys must be those of a task.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        let Members(members) = serde_json::from_slice(line).map_err(|error| not_json(&error))?;
        for (index, (key, _)) in members.iter().enumerate() {
            if !KEYS.contains(&key.as_str()) {
                return Err(unknown(key, "", KEYS));
            }
            if members[..index].iter().any(|(other, _)| other == key) {
                return Err(Error::Twice(key.clone()));
            }
        }
        Ok(Self(members))
    }

    pub fn has(&self, key: &str) -> bool {
        self.0.iter().any(|(name, _)| name == key)
    }

    /// Removes and returns a value; `null` counts as absent.
    fn take(&mut self, key: &str) -> Option<Value> {
        let index = self.0.iter().position(|(name, _)| name == key)?;
        Some(self.0.swap_remove(index).1).filter(|value| !value.is_null())
    }

    pub fn id(&mut self) -> Result<Option<TaskId>, Error> {
        self.take("id")
            .map(|value| TaskId::from_json(&value).ok_or(Error::Id))
            .transpose()
    }

    pub fn text(&mut self, key: &str) -> Result<Option<String>, Error> {
        self.take(key)
            .map(|value| match value {
                Value::String(text) => Ok(text),
                _ => Err(of_type(key, "a text")),
            })
            .transpose()
    }

    pub fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>, Error> {
        let Some(value) = self.take(key) else {
            return Ok(None);
        };
        serde_json::from_value(value)
            .map(Some)
            .map_err(|_| of_type(key, "a list of texts"))
    }

    pub fn bytes(&mut self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.take(key).map(|value| bytes(key, value)).transpose()
    }

    pub fn files(&mut self) -> Result<Vec<(GuestPath, Vec<u8>)>, Error> {
        let file = |(path, value): (String, Value)| {
            let contents = bytes(&format!("files.{path}"), value)?;
            Ok((GuestPath::parse_file(&path)?, contents))
        };
        match members("files", self.take("files"))? {
            Some(files) => files.into_iter().map(file).collect(),
            None => Ok(Vec::new()),
        }
    }

    pub fn expect(&mut self) -> Result<Option<Expect>, Error> {
        self.take("expect").map(expect).transpose()
    }

    pub fn limits(&mut self) -> Result<LimitOverrides, Error> {
        const WANTED: &str =
            "a text with a unit, such as \"2s\" or \"64KiB\", or a number of seconds or of bytes";
        let mut limits = LimitOverrides::default();
        for (key, value) in members("limits", self.take("limits"))?.unwrap_or_default() {
            let name = limit(&key)?;
            let amount = match &value {
                Value::String(text) => name.amount(text),
                Value::Number(number) => {
                    let amount = name.spec().unit.of_number(number);
                    amount.ok_or_else(|| format!("{number} is no amount of seconds or of bytes"))
                }
                _ => return Err(of_type(name.key(), WANTED)),
            };
            match amount {
                Ok(0) => return Err(Error::Zero(name)),
                Ok(amount) => limits.set(name, amount),
                Err(why) => return Err(Error::Quantity { name, why }),
            }
        }
        Ok(limits)
    }
}

/// The rules of a comparison: a text stands for the stdout that is expected.
fn expect(value: Value) -> Result<Expect, Error> {
    let mut expect = Expect::default();
    if let Value::String(text) = value {
        expect.stdout = Some(text);
        return Ok(expect);
    }
    let Value::Object(members) = value else {
        return Err(of_type("expect", "a text, or a JSON object"));
    };
    for (key, value) in members {
        match (key.as_str(), value) {
            ("value", value) => expect.value = Some(value),
            ("stdout", Value::String(text)) => expect.stdout = Some(text),
            ("stdout", _) => return Err(of_type("expect.stdout", "a text")),
            ("tolerance", value) => {
                let tolerance = value.as_f64().filter(|it| it.is_finite() && *it >= 0.0);
                let wanted = "a number that is not negative";
                let tolerance = tolerance.ok_or_else(|| of_type("expect.tolerance", wanted))?;
                expect.tolerance = Some(tolerance);
            }
            ("whitespace", value) => {
                let rule = value.as_str().and_then(|word| word.parse().ok());
                let wanted = "\"trailing\", \"any\" or \"exact\"";
                expect.whitespace = rule.ok_or_else(|| of_type("expect.whitespace", wanted))?;
            }
            _ => {
                let known = ["stdout", "value", "whitespace", "tolerance"];
                return Err(unknown(&key, "expect.", known));
            }
        }
    }
    match (&expect.stdout, &expect.value, expect.tolerance) {
        (None, None, _) => Err(Error::NothingExpected),
        (Some(_), _, Some(_)) if expect.whitespace == Whitespace::Exact => {
            Err(Error::ToleranceOfExact)
        }
        _ => Ok(expect),
    }
}

/// The limit that a key of `limits` names, which a task may lower.
fn limit(key: &str) -> Result<LimitName, Error> {
    let of_table = |name: LimitName| Some((name.key().strip_prefix("limits.")?, name));
    let limits = LimitName::ALL.into_iter().filter_map(of_table);
    match limits.clone().find(|(short, _)| *short == key) {
        Some((_, name)) if name.spec().scope == Scope::Run => Ok(name),
        Some((_, name)) => Err(Error::OfPolicy {
            key: name.key().to_owned(),
        }),
        None => Err(unknown(key, "limits.", limits.map(|(short, _)| short))),
    }
}

fn unknown(key: &str, table: &str, known: impl IntoIterator<Item = &'static str>) -> Error {
    let shown: String = key.chars().take(60).collect();
    let known: Vec<&str> = known.into_iter().collect();
    let near = closest(key, known.iter().copied()).map(|near| format!("{table}{near}"));
    // A limit by its name alone, or by that of another program.
    let limit = meant(key).filter(|key| key.starts_with("limits."));
    let remedy = match near.or_else(|| limit.map(str::to_owned)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it is none of {}", known.join(", ")),
    };
    Error::UnknownKey {
        key: format!("{table}{shown}"),
        remedy,
    }
}

fn of_type(key: &str, wanted: &'static str) -> Error {
    let key = key.to_owned();
    Error::Type { key, wanted }
}

/// The members of a nested object.
fn members(key: &str, value: Option<Value>) -> Result<Option<Vec<(String, Value)>>, Error> {
    match value {
        None => Ok(None),
        Some(Value::Object(members)) => Ok(Some(members.into_iter().collect())),
        Some(_) => Err(of_type(key, "a JSON object")),
    }
}

/// A text stands for its UTF-8; other bytes are `{"base64": "..."}`.
fn bytes(key: &str, value: Value) -> Result<Vec<u8>, Error> {
    const WANTED: &str = "a text, or {\"base64\": \"...\"}";
    match value {
        Value::String(text) => Ok(text.into_bytes()),
        Value::Object(members) if members.len() == 1 => match members.get("base64") {
            Some(Value::String(text)) => STANDARD
                .decode(text)
                .map_err(|_| Error::Base64(key.to_owned())),
            _ => Err(of_type(key, WANTED)),
        },
        _ => Err(of_type(key, WANTED)),
    }
}

fn not_json(error: &serde_json::Error) -> Error {
    match error.classify() {
        Category::Eof => return Error::Cut,
        Category::Data => return Error::NotAnObject,
        Category::Syntax | Category::Io => {}
    }
    let text = error.to_string();
    // Drops the line, which is always the first; the column is reported separately.
    let what = text.split(" at line ").next().unwrap_or(&text).to_owned();
    let column = error.column();
    Error::NotJson { what, column }
}

/// The members of an object in order, with duplicates.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;

        impl<'de> Visitor<'de> for Object {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(Object)
    }
}
