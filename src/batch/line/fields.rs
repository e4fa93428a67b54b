//! Parses and validates the keys and values of a task line.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Number;

use super::invalid;
use crate::batch::TaskId;
use crate::batch::exact_json::{ExactJson as Json, ExactNumber};
use crate::batch::expect::{Expect, Whitespace};
use crate::error::Error;
use crate::outcome::{LimitName, Scope};
use crate::policy::{LimitOverrides, closest, meant};
use crate::supervisor::files::GuestPath;

/// All keys of a task.
const KEYS: [&str; 10] = [
    "id", "code", "file", "program", "args", "files", "stdin", "limits", "policy", "expect",
];

/// The members of a task's JSON object.
#[derive(Debug)]
pub struct Fields(BTreeMap<String, Json>);

impl Fields {
    /// Parses a JSON object, whose keys must be those of a task.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        let Json::Object(members) = Json::parse(line)? else {
            return Err(invalid(
                r#"it is not a JSON object: write one task per line, such as {"id": 1, "code": "print(1)"}"#,
            ));
        };
        match members.keys().find(|key| !KEYS.contains(&key.as_str())) {
            Some(key) => Err(unknown(key, "", KEYS)),
            None => Ok(Self(members)),
        }
    }

    /// Returns whether a value is present; `null` counts as absent.
    pub fn has(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|value| *value != Json::Null)
    }

    /// Removes and returns a value; `null` counts as absent.
    fn take(&mut self, key: &str) -> Option<Json> {
        self.0.remove(key).filter(|value| *value != Json::Null)
    }

    pub fn id(&mut self) -> Result<Option<TaskId>, Error> {
        let id = match self.take("id") {
            None => return Ok(None),
            Some(Json::Number(ExactNumber::Whole(number))) => {
                i64::try_from(number).ok().map(TaskId::Number)
            }
            Some(Json::Text(text)) if !text.is_empty() => Some(TaskId::Text(text)),
            Some(_) => None,
        };
        let wanted = "`id` must be a text that is not empty, or a whole number of 64 bits";
        id.map(Some).ok_or_else(|| invalid(wanted))
    }

    pub fn text(&mut self, key: &str) -> Result<Option<String>, Error> {
        self.take(key)
            .map(|value| match value {
                Json::Text(text) => Ok(text),
                _ => Err(type_error(key, "a text")),
            })
            .transpose()
    }

    pub fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>, Error> {
        let not_texts = || type_error(key, "a list of texts");
        let texts = |items: Vec<Json>| {
            let items = items.into_iter();
            let texts = items.map(|item| match item {
                Json::Text(text) => Some(text),
                _ => None,
            });
            texts.collect::<Option<_>>().ok_or_else(not_texts)
        };
        match self.take(key) {
            None => Ok(None),
            Some(Json::List(items)) => texts(items).map(Some),
            Some(_) => Err(not_texts()),
        }
    }

    pub fn bytes(&mut self, key: &str) -> Result<Option<Vec<u8>>, Error> {
        self.take(key).map(|value| bytes(key, value)).transpose()
    }

    pub fn files(&mut self) -> Result<Vec<(GuestPath, Vec<u8>)>, Error> {
        let file = |(path, value): (String, Json)| {
            let contents = bytes(&format!("files.{path}"), value)?;
            let path = GuestPath::parse_file(&path);
            Ok((
                path.map_err(|error| invalid(format!("`files`: {error}")))?,
                contents,
            ))
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
            "a text with a unit, such as \"2s\" or \"64KiB\", or a number of seconds or bytes";
        let mut limits = LimitOverrides::default();
        for (key, value) in members("limits", self.take("limits"))?.unwrap_or_default() {
            let name = limit(&key)?;
            let amount = match &value {
                Json::Text(text) => name.amount(text),
                Json::Number(number) => {
                    let amount = plain(number).and_then(|it| name.spec().unit.of_number(&it));
                    amount.ok_or_else(|| format!("{number} is not a number of seconds or bytes"))
                }
                _ => return Err(type_error(name.key(), WANTED)),
            };
            match amount {
                Ok(0) => {
                    return Err(invalid(format!(
                        "`{}` is zero, so nothing could run: leave it out to use the policy's",
                        name.key()
                    )));
                }
                Ok(amount) => limits.set(name, amount),
                Err(why) => return Err(invalid(format!("`{}`: {why}", name.key()))),
            }
        }
        Ok(limits)
    }
}

/// Parses `expect`. A text is short for the expected stdout.
fn expect(value: Json) -> Result<Expect, Error> {
    let mut expect = Expect::default();
    if let Json::Text(text) = value {
        expect.stdout = Some(text);
        return Ok(expect);
    }
    let Json::Object(members) = value else {
        return Err(type_error("expect", "a text, or a JSON object"));
    };
    for (key, value) in members {
        match (key.as_str(), value) {
            ("value", value) => expect.value = Some(value),
            ("stdout", Json::Text(text)) => expect.stdout = Some(text),
            ("stdout", _) => return Err(type_error("expect.stdout", "a text")),
            ("tolerance", value) => {
                let number = match &value {
                    Json::Number(number) => plain(number).and_then(|it| it.as_f64()),
                    _ => None,
                };
                let tolerance = number.filter(|it| it.is_finite() && *it >= 0.0);
                let wanted = "a number that is not negative";
                let tolerance = tolerance.ok_or_else(|| type_error("expect.tolerance", wanted))?;
                expect.tolerance = Some(tolerance);
            }
            ("whitespace", value) => {
                let rule = value.as_text().and_then(|word| word.parse().ok());
                let wanted = "\"trailing\", \"any\" or \"exact\"";
                expect.whitespace = rule.ok_or_else(|| type_error("expect.whitespace", wanted))?;
            }
            _ => {
                let known = ["stdout", "value", "whitespace", "tolerance"];
                return Err(unknown(&key, "expect.", known));
            }
        }
    }
    match (&expect.stdout, &expect.value, expect.tolerance) {
        (None, None, _) => Err(invalid(
            "`expect` compares nothing: give it `stdout` or `value`",
        )),
        (Some(_), _, Some(_)) if expect.whitespace == Whitespace::Exact => Err(invalid(
            "`expect.tolerance` compares words, which `whitespace` = \"exact\" does not: use \"trailing\" or \"any\"",
        )),
        _ => Ok(expect),
    }
}

/// Returns the limit that a key of `limits` names, if tasks may lower it.
fn limit(key: &str) -> Result<LimitName, Error> {
    let of_table = |name: LimitName| Some((name.key().strip_prefix("limits.")?, name));
    let limits = LimitName::ALL.into_iter().filter_map(of_table);
    match limits.clone().find(|(short, _)| *short == key) {
        Some((_, name)) if name.spec().scope == Scope::Run => Ok(name),
        Some((_, name)) => Err(invalid(format!(
            "`{key}` is part of the jail, which tasks of one policy share: set it in the policy (`--set {key}=...`)",
            key = name.key()
        ))),
        None => Err(unknown(key, "limits.", limits.map(|(short, _)| short))),
    }
}

fn unknown(key: &str, table: &str, known: impl IntoIterator<Item = &'static str>) -> Error {
    let shown: String = key.chars().take(60).collect();
    let known: Vec<&str> = known.into_iter().collect();
    let near = closest(key, known.iter().copied()).map(|near| format!("{table}{near}"));
    // The key may be a limit's short name, or another program's option.
    let limit = meant(key).filter(|key| key.starts_with("limits."));
    let remedy = match near.or_else(|| limit.map(str::to_owned)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it is none of {}", known.join(", ")),
    };
    invalid(format!("unknown key `{table}{shown}`: {remedy}"))
}

fn type_error(key: &str, wanted: &str) -> Error {
    invalid(format!("`{key}` must be {wanted}"))
}

/// Returns the members of a nested object.
fn members(key: &str, value: Option<Json>) -> Result<Option<BTreeMap<String, Json>>, Error> {
    match value {
        None => Ok(None),
        Some(Json::Object(members)) => Ok(Some(members)),
        Some(_) => Err(type_error(key, "a JSON object")),
    }
}

/// Returns bytes: a text as UTF-8, or `{"base64": "..."}`.
fn bytes(key: &str, value: Json) -> Result<Vec<u8>, Error> {
    const WANTED: &str = "a text, or {\"base64\": \"...\"}";
    match value {
        Json::Text(text) => Ok(text.into_bytes()),
        Json::Object(members) if members.len() == 1 => match members.get("base64") {
            Some(Json::Text(text)) => STANDARD.decode(text).map_err(|_| {
                invalid(format!(
                    "`{key}` is not base64: use the standard alphabet (RFC 4648), with padding"
                ))
            }),
            _ => Err(type_error(key, WANTED)),
        },
        _ => Err(type_error(key, WANTED)),
    }
}

/// Converts the number to serde_json's representation.
fn plain(number: &ExactNumber) -> Option<Number> {
    number.to_string().parse().ok()
}
