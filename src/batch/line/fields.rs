//! The keys and values of a line.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Number;

use super::wrong;
use crate::batch::TaskId;
use crate::batch::exact_json::{ExactJson as Json, ExactNumber};
use crate::batch::expect::{Expect, Whitespace};
use crate::error::Error;
use crate::outcome::{LimitName, Scope};
use crate::policy::{LimitOverrides, closest, meant};
use crate::supervisor::files::GuestPath;

/// Every key of a task.
const KEYS: [&str; 10] = [
    "id", "code", "file", "program", "args", "files", "stdin", "limits", "policy", "expect",
];

/// The members of an object, which are those of a task.
#[derive(Debug)]
pub struct Fields(BTreeMap<String, Json>);

impl Fields {
    /// Parses an object whose keys must be those of a task.
    pub fn parse(line: &[u8]) -> Result<Self, Error> {
        let Json::Object(members) = Json::parse(line)? else {
            return Err(wrong(
                r#"it is not a JSON object: write one task a line, such as {"id": 1, "code": "print(1)"}"#,
            ));
        };
        match members.keys().find(|key| !KEYS.contains(&key.as_str())) {
            Some(key) => Err(unknown(key, "", KEYS)),
            None => Ok(Self(members)),
        }
    }

    /// Whether there is a value; `null` counts as absent.
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
        id.map(Some).ok_or_else(|| wrong(wanted))
    }

    pub fn text(&mut self, key: &str) -> Result<Option<String>, Error> {
        self.take(key)
            .map(|value| match value {
                Json::Text(text) => Ok(text),
                _ => Err(of_type(key, "a text")),
            })
            .transpose()
    }

    pub fn texts(&mut self, key: &str) -> Result<Option<Vec<String>>, Error> {
        let not_texts = || of_type(key, "a list of texts");
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
                path.map_err(|error| wrong(format!("`files`: {error}")))?,
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
            "a text with a unit, such as \"2s\" or \"64KiB\", or a number of seconds or of bytes";
        let mut limits = LimitOverrides::default();
        for (key, value) in members("limits", self.take("limits"))?.unwrap_or_default() {
            let name = limit(&key)?;
            let amount = match &value {
                Json::Text(text) => name.amount(text),
                Json::Number(number) => {
                    let amount = plain(number).and_then(|it| name.spec().unit.of_number(&it));
                    amount.ok_or_else(|| format!("{number} is no amount of seconds or of bytes"))
                }
                _ => return Err(of_type(name.key(), WANTED)),
            };
            match amount {
                Ok(0) => {
                    return Err(wrong(format!(
                        "`{}` is zero, under which nothing runs: leave it out for the policy's",
                        name.key()
                    )));
                }
                Ok(amount) => limits.set(name, amount),
                Err(why) => return Err(wrong(format!("`{}`: {why}", name.key()))),
            }
        }
        Ok(limits)
    }
}

/// The rules of a comparison: a text stands for the stdout that is expected.
fn expect(value: Json) -> Result<Expect, Error> {
    let mut expect = Expect::default();
    if let Json::Text(text) = value {
        expect.stdout = Some(text);
        return Ok(expect);
    }
    let Json::Object(members) = value else {
        return Err(of_type("expect", "a text, or a JSON object"));
    };
    for (key, value) in members {
        match (key.as_str(), value) {
            ("value", value) => expect.value = Some(value),
            ("stdout", Json::Text(text)) => expect.stdout = Some(text),
            ("stdout", _) => return Err(of_type("expect.stdout", "a text")),
            ("tolerance", value) => {
                let number = match &value {
                    Json::Number(number) => plain(number).and_then(|it| it.as_f64()),
                    _ => None,
                };
                let tolerance = number.filter(|it| it.is_finite() && *it >= 0.0);
                let wanted = "a number that is not negative";
                let tolerance = tolerance.ok_or_else(|| of_type("expect.tolerance", wanted))?;
                expect.tolerance = Some(tolerance);
            }
            ("whitespace", value) => {
                let rule = value.as_text().and_then(|word| word.parse().ok());
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
        (None, None, _) => Err(wrong(
            "`expect` compares nothing: give it `stdout` or `value`",
        )),
        (Some(_), _, Some(_)) if expect.whitespace == Whitespace::Exact => Err(wrong(
            "`expect.tolerance` compares words, which `whitespace` = \"exact\" does not: take \"trailing\" or \"any\"",
        )),
        _ => Ok(expect),
    }
}

/// The limit that a key of `limits` names, which a task may lower.
fn limit(key: &str) -> Result<LimitName, Error> {
    let of_table = |name: LimitName| Some((name.key().strip_prefix("limits.")?, name));
    let limits = LimitName::ALL.into_iter().filter_map(of_table);
    match limits.clone().find(|(short, _)| *short == key) {
        Some((_, name)) if name.spec().scope == Scope::Run => Ok(name),
        Some((_, name)) => Err(wrong(format!(
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
    // A limit by its name alone, or by that of another program.
    let limit = meant(key).filter(|key| key.starts_with("limits."));
    let remedy = match near.or_else(|| limit.map(str::to_owned)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("it is none of {}", known.join(", ")),
    };
    wrong(format!("unknown key `{table}{shown}`: {remedy}"))
}

fn of_type(key: &str, wanted: &str) -> Error {
    wrong(format!("`{key}` must be {wanted}"))
}

/// The members of a nested object.
fn members(key: &str, value: Option<Json>) -> Result<Option<BTreeMap<String, Json>>, Error> {
    match value {
        None => Ok(None),
        Some(Json::Object(members)) => Ok(Some(members)),
        Some(_) => Err(of_type(key, "a JSON object")),
    }
}

/// A text stands for its UTF-8; other bytes are `{"base64": "..."}`.
fn bytes(key: &str, value: Json) -> Result<Vec<u8>, Error> {
    const WANTED: &str = "a text, or {\"base64\": \"...\"}";
    match value {
        Json::Text(text) => Ok(text.into_bytes()),
        Json::Object(members) if members.len() == 1 => match members.get("base64") {
            Some(Json::Text(text)) => STANDARD.decode(text).map_err(|_| {
                wrong(format!(
                    "`{key}` is not base64: take the standard alphabet (RFC 4648), with padding"
                ))
            }),
            _ => Err(of_type(key, WANTED)),
        },
        _ => Err(of_type(key, WANTED)),
    }
}

/// The number where 64 bits are enough.
fn plain(number: &ExactNumber) -> Option<Number> {
    number.to_string().parse().ok()
}
