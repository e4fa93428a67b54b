//! `--set limits.wall=2s`: one key of a policy, changed for one run.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use toml::Value;
use toml::de::DeTable;

use super::error::PolicyError;
use super::keys::{Key, Kind, find};
use super::layer::{Layer, Source};
use crate::outcome::Unit;

/// One key and its value, as given on the command line.
///
/// A string key takes the text unchanged (`limits.wall=2s`); any other key takes TOML
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

/// Parses a dotted key of TOML, quoted parts included.
fn key_path(key: &str) -> Option<Vec<String>> {
    // A line break or a comment would allow more than a key.
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
    /// Whether a policy could have the key and the value, in itself.
    pub(crate) fn is_valid(&self) -> bool {
        self.layer(None).is_ok_and(|layer| layer.errors.is_empty())
    }

    /// The override as a policy text of one key.
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
            // An entry, as opposed to a change of the list.
            (Notation::List, Some(Value::Table(entry))) if entry.contains_key("host") => {
                Value::Array(vec![Value::Table(entry)])
            }
            (Notation::List, Some(list @ (Value::Array(_) | Value::Table(_)))) => list,
            (Notation::List, Some(Value::String(quoted))) => {
                Value::Array(vec![Value::String(quoted)])
            }
            // Every list of a policy holds strings, or takes them.
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

/// How an argument writes a key's value.
enum Notation {
    Text,
    List,
    Toml,
}
