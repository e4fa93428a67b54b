//! The values of a policy's keys: those of one text, or those of all its texts together.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::error::{PolicyError, PolicyProblem};
use super::keys::{NEVER, SECTIONS, keys_of};
use super::origin::{Located, Origin};
use crate::outcome::{LimitName, Unit};

/// A value of the kind that its key takes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Value {
    Flag(bool),
    /// In its canonical form.
    Text(String),
    List(Vec<Located<String>>),
    Variables(BTreeMap<String, Located<String>>),
    Limit(LimitName, u64),
    /// Milliseconds, or `None` for never.
    Term(Option<u64>),
}

/// Values by their dotted keys.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Values(BTreeMap<&'static str, Located<Value>>);

/// Combining.
impl Values {
    /// Gives a key a value, in place of the one that it has.
    pub(super) fn set(&mut self, key: &'static str, value: Located<Value>) {
        self.0.insert(key, value);
    }

    /// Replaces the value of a key that has one.
    pub(super) fn replace(&mut self, key: &str, value: Value) {
        if let Some(said) = self.0.get_mut(key) {
            said.value = value;
        }
    }

    /// Removes a key's value.
    pub(super) fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Adds the values of a text that builds on these: lists append, other values replace.
    pub(super) fn merge(&mut self, later: &Self) {
        for (key, later) in &later.0 {
            let own = self.0.get_mut(key).map(|own| &mut own.value);
            match (own, &later.value) {
                (Some(Value::List(items)), Value::List(more)) => items.extend_from_slice(more),
                _ => self.set(key, later.clone()),
            }
        }
    }

    /// Refuses an amount that is out of its range, and an item that a list has twice.
    pub(super) fn check(&self) -> Result<(), PolicyError> {
        for (key, Located { value, origin }) in &self.0 {
            match value {
                Value::Limit(limit, amount) => check_range(key, origin, *limit, *amount, "")?,
                // A longer time is meant to have no end.
                Value::Term(Some(time)) => {
                    let or = format!(", or \"{NEVER}\"");
                    check_range(key, origin, LimitName::Wall, *time, &or)?;
                }
                Value::List(items) => refuse_duplicates(key, items)?,
                _ => {}
            }
        }
        Ok(())
    }
}

fn check_range(
    key: &str,
    origin: &Origin,
    limit: LimitName,
    amount: u64,
    or: &str,
) -> Result<(), PolicyError> {
    let (unit, range) = (limit.spec().unit, &limit.spec().range);
    if range.contains(&amount) {
        return Ok(());
    }
    let problem = PolicyProblem::OutOfRange {
        value: unit.text(amount),
        least: unit.text(*range.start()),
        most: unit.text(*range.end()) + or,
    };
    Err(PolicyError::new(origin.clone(), key, problem))
}

/// Refuses the first item that means the same as an earlier one.
fn refuse_duplicates(key: &str, items: &[Located<String>]) -> Result<(), PolicyError> {
    let mut seen: BTreeMap<&str, &Origin> = BTreeMap::new();
    for item in items {
        let meaning = match key {
            // `numpy` and `numpy?` name one module, with different answers on whether it must exist.
            "python.preload" => item.value.trim_end_matches('?'),
            _ => &item.value,
        };
        if let Some(first) = seen.insert(meaning, &item.origin) {
            let problem = PolicyProblem::Duplicate {
                item: meaning.to_owned(),
                first: first.clone(),
            };
            return Err(PolicyError::new(item.origin.clone(), key, problem));
        }
    }
    Ok(())
}

/// What a policy has because the built-in `standard`, on which every policy builds, gives it.
pub(super) fn given<T>(value: Option<T>) -> T {
    value.expect("`standard` gives every key a value of its kind")
}

/// The values as their types, for a key that has one of that type.
impl Values {
    /// Where a key was given its value.
    pub(super) fn origin(&self, key: &str) -> Option<&Origin> {
        self.0.get(key).map(|said| &said.origin)
    }

    fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key).map(|said| &said.value)
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        match self.value(key)? {
            Value::Flag(flag) => Some(*flag),
            _ => None,
        }
    }

    pub(super) fn text<T: FromStr>(&self, key: &str) -> Option<Located<T>> {
        match self.value(key)? {
            Value::Text(text) => Some(Located::new(text.parse().ok()?, self.origin(key)?.clone())),
            _ => None,
        }
    }

    pub(super) fn list<T: FromStr>(&self, key: &str) -> Option<Vec<Located<T>>> {
        let item = |item: &Located<String>| {
            let value = item.value.parse().ok()?;
            Some(Located::new(value, item.origin.clone()))
        };
        match self.value(key)? {
            Value::List(items) => items.iter().map(item).collect(),
            _ => None,
        }
    }

    pub(super) fn variables(&self, key: &str) -> Option<&BTreeMap<String, Located<String>>> {
        match self.value(key)? {
            Value::Variables(set) => Some(set),
            _ => None,
        }
    }

    pub(super) fn limit(&self, limit: LimitName) -> Option<u64> {
        match self.value(limit.key())? {
            Value::Limit(_, amount) => Some(*amount),
            _ => None,
        }
    }

    /// A time of a session, which may be never.
    #[expect(
        clippy::option_option,
        reason = "a key without a value is not one whose time is never"
    )]
    pub(super) fn term(&self, key: &str) -> Option<Option<Duration>> {
        match self.value(key)? {
            Value::Term(time) => Some(time.map(Duration::from_millis)),
            _ => None,
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Flag(flag) => to.serialize_bool(*flag),
            Self::Text(text) => to.serialize_str(text),
            Self::List(items) => to.collect_seq(items.iter().map(|item| &item.value)),
            Self::Variables(set) => {
                to.collect_map(set.iter().map(|(name, value)| (name, &value.value)))
            }
            Self::Limit(limit, amount) => limit.spec().unit.serialize(*amount, to),
            Self::Term(Some(time)) => Unit::Duration.serialize(*time, to),
            Self::Term(None) => to.serialize_str(NEVER),
        }
    }
}

/// A policy file with these values, in the order of the table of keys.
impl Serialize for Values {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut file = to.serialize_map(None)?;
        for (name, value) in self.entries("") {
            file.serialize_entry(name, value)?;
        }
        for (section, _) in SECTIONS {
            file.serialize_entry(section, &Section(self, section))?;
        }
        file.end()
    }
}

impl Values {
    fn entries(&self, section: &str) -> impl Iterator<Item = (&'static str, &Value)> {
        keys_of(section).filter_map(|key| Some((key.parts().1, self.value(key.name)?)))
    }
}

struct Section<'a>(&'a Values, &'static str);

impl Serialize for Section<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.0.entries(self.1))
    }
}
