//! Parses overrides such as `--set limits.wall=2s`, which change one key of a policy for one run.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use toml::Value;
use toml::de::DeTable;

use super::error::PolicyError;
use super::keys::{Key, Kind, find};
use super::layer::{Layer, Source};
use crate::outcome::Unit;

/// A key and its value, as written on the command line.
///
/// A key of type string takes the text verbatim (`limits.wall=2s`); other keys take TOML
/// (`limits.cores=0.5`). A list takes one item or a TOML array, and appends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Override {
    path: Vec<String>,
    text: String,
}

impl FromStr for Override {
    type Err = PolicyError;

    fn from_str(argument: &str) -> Result<Self, PolicyError> {
        let split = argument.split_once('=');
        let parsed = split.and_then(|(key, text)| Some((key_path(key)?, text)));
        match parsed {
            Some((path, text)) => Ok(Self {
                path,
                text: text.to_owned(),
            }),
            None => Err(PolicyError::of_file(
                Source::argument().whole(),
                format!(
                    "\"{argument}\" is not an override: write KEY=VALUE with a key of the policy file, \
                     such as limits.wall=2s"
                ),
            )),
        }
    }
}

impl fmt::Display for Override {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.path.join("."), self.text)
    }
}

/// Parses a dotted TOML key, which may have quoted parts.
fn key_path(key: &str) -> Option<Vec<String>> {
    // After a line break or a comment, the text could have more than a key.
    if key.contains(['\n', '\r', '#']) {
        return None;
    }
    let text = format!("{key} = 0");
    let document = DeTable::parse(&text).ok()?;
    let mut path = Vec::new();
    let mut table = document.get_ref();
    loop {
        let (name, value) = table.iter().next()?;
        path.push(name.get_ref().to_string());
        match value.get_ref().as_table() {
            Some(inner) => table = inner,
            None => return Some(path),
        }
    }
}

impl Override {
    /// Returns whether the key exists and accepts the value.
    pub(crate) fn is_valid(&self) -> bool {
        self.layer(None).is_ok_and(|layer| layer.errors.is_empty())
    }

    /// Parses the override as a policy text with one key.
    pub(super) fn layer(&self, directory: Option<&Path>) -> Result<Layer, Vec<PolicyError>> {
        let source = Source::argument();
        if self.path == ["extends"] {
            let problem = "only a policy file can extend another: choose the policy with --policy";
            return Err(vec![PolicyError::of_file(source.whole(), problem)]);
        }
        let value = self.value();
        let mut names = self.path.iter().rev();
        let mut document = toml::Table::new();
        if let Some(last) = names.next() {
            document.insert(last.clone(), value);
        }
        for name in names {
            document = toml::Table::from_iter([(name.clone(), Value::Table(document))]);
        }
        Layer::parse(
            &source,
            &document.to_string(),
            directory.map(Path::to_owned),
        )
    }

    fn value(&self) -> Value {
        let as_text = || Value::String(self.text.clone());
        let parsed: Option<Value> = self.text.parse().ok();
        match (self.notation(), parsed) {
            (Notation::Text, Some(Value::String(quoted))) => Value::String(quoted),
            (Notation::Text, _) => as_text(),
            // A table with `host` is an entry; other tables change the list.
            (Notation::List, Some(Value::Table(entry))) if entry.contains_key("host") => {
                Value::Array(vec![Value::Table(entry)])
            }
            (Notation::List, Some(list @ (Value::Array(_) | Value::Table(_)))) => list,
            (Notation::List, Some(Value::String(quoted))) => {
                Value::Array(vec![Value::String(quoted)])
            }
            // Every list of a policy accepts strings.
            (Notation::List, _) => Value::Array(vec![as_text()]),
            (Notation::Toml, parsed) => parsed.unwrap_or_else(as_text),
        }
    }

    fn key(&self) -> Option<Key> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        match path[..] {
            [name] => find("", name),
            [section, name] => find(section, name),
            _ => None,
        }
    }

    fn notation(&self) -> Notation {
        if matches!(&self.path[..], [env, set, _] if env == "env" && set == "set") {
            return Notation::Text;
        }
        match self.key().map(|key| key.kind) {
            Some(Kind::Word(_) | Kind::Text(_) | Kind::Term) => Notation::Text,
            Some(Kind::Limit(limit)) => match limit.spec().unit {
                Unit::Duration | Unit::Size => Notation::Text,
                Unit::Count | Unit::Cores => Notation::Toml,
            },
            Some(Kind::List(_) | Kind::Rules) => Notation::List,
            Some(Kind::Flag | Kind::Variables) | None => Notation::Toml,
        }
    }
}

/// The notation of a key's value in an argument.
enum Notation {
    Text,
    List,
    Toml,
}
