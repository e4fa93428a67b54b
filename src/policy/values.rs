//! The values of policy keys, of one text or merged from several texts.

use std::collections::BTreeMap;
use std::str::FromStr;
use std::time::Duration;

use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::error::PolicyError;
use super::keys::{NEVER, SECTIONS, keys_of};
use super::origin::{Located, Origin};
use super::rule_table;
use super::suggest::closest;
use crate::outcome::{LimitName, Unit};

/// A value of a key, of the kind that the key accepts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Value {
    Flag(bool),
    /// A string in canonical form.
    Text(String),
    List(ListChange),
    Variables(BTreeMap<String, Located<String>>),
    Limit(LimitName, u64),
    /// Milliseconds, or `None` for never.
    Term(Option<u64>),
}

/// A change to an inherited list. A plain list only adds items.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct ListChange {
    /// The inherited items to remove.
    pub(super) remove: Vec<Located<String>>,
    /// The items to append.
    pub(super) add: Vec<Located<String>>,
}

impl ListChange {
    /// Applies a later change. Each item that the change removes must be in the list.
    fn apply(&mut self, key: &str, later: &Self, errors: &mut Vec<PolicyError>) {
        for item in &later.remove {
            let before = self.add.len();
            let removed = subject(key, &item.value);
            self.add.retain(|own| subject(key, &own.value) != removed);
            if self.add.len() == before {
                let inherited = self.add.iter().map(|own| match key {
                    HOSTS => subject(key, &own.value),
                    _ => &own.value,
                });
                let hint = match closest(&item.value, inherited) {
                    Some(near) => format!("did you mean \"{near}\"?"),
                    None => "remove it from `remove`".to_owned(),
                };
                let problem = format!(
                    "no policy that this one builds on has \"{}\" in this list: {hint}",
                    item.value
                );
                errors.push(PolicyError::new(item.origin.clone(), key, problem));
            }
        }
        self.add.extend_from_slice(&later.add);
    }
}

/// The list whose items may be tables.
const HOSTS: &str = "network.allow";

/// Returns the part of an item that must be unique in its list.
fn meaning<'a>(key: &str, item: &'a str) -> &'a str {
    match key {
        // `numpy` and `numpy?` name the same module, which is required or optional.
        "python.preload" => item.trim_end_matches('?'),
        _ => item,
    }
}

/// Returns the part of an item that `remove` matches. Several items may match.
fn subject<'a>(key: &str, item: &'a str) -> &'a str {
    match key {
        HOSTS => rule_table::host_of(item),
        _ => meaning(key, item),
    }
}

/// Values by dotted key.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct Values(BTreeMap<&'static str, Located<Value>>);

/// Merging and checking.
impl Values {
    /// Sets the value of a key.
    pub(super) fn set(&mut self, key: &'static str, value: Located<Value>) {
        self.0.insert(key, value);
    }

    /// Replaces the value of a key that has one, and keeps its origin.
    pub(super) fn replace(&mut self, key: &str, value: Value) {
        if let Some(located) = self.0.get_mut(key) {
            located.value = value;
        }
    }

    /// Removes a key's value.
    pub(super) fn remove(&mut self, key: &str) {
        self.0.remove(key);
    }

    /// Merges the values of a text that extends this one: lists are changed, other values replaced.
    pub(super) fn merge(&mut self, later: &Self, errors: &mut Vec<PolicyError>) {
        for (key, later) in &later.0 {
            match &later.value {
                Value::List(change) => {
                    let empty =
                        || Located::new(Value::List(ListChange::default()), later.origin.clone());
                    let own = self.0.entry(key).or_insert_with(empty);
                    if let Value::List(list) = &mut own.value {
                        list.apply(key, change, errors);
                    }
                }
                _ => self.set(key, later.clone()),
            }
        }
    }

    /// Rejects amounts that are out of range, and duplicate list items.
    pub(super) fn check(&self, errors: &mut Vec<PolicyError>) {
        for (key, Located { value, origin }) in &self.0 {
            match value {
                Value::Limit(limit, amount) => {
                    errors.extend(out_of_range(key, origin, *limit, *amount, ""));
                }
                // The maximum is that of `limits.wall`: a longer time is written as "never".
                Value::Term(Some(time)) => {
                    let or = format!(", or \"{NEVER}\"");
                    errors.extend(out_of_range(key, origin, LimitName::Wall, *time, &or));
                }
                Value::List(list) => refuse_duplicates(key, &list.add, errors),
                _ => {}
            }
        }
    }
}

fn out_of_range(
    key: &str,
    origin: &Origin,
    limit: LimitName,
    amount: u64,
    or: &str,
) -> Option<PolicyError> {
    let (unit, range) = (limit.spec().unit, &limit.spec().range);
    if range.contains(&amount) {
        return None;
    }
    let [value, least, most] = [amount, *range.start(), *range.end()].map(|it| unit.text(it));
    let problem = format!("{value} is out of range: write {least} to {most}{or}");
    Some(PolicyError::new(origin.clone(), key, problem))
}

/// Rejects each item that has the same meaning as an earlier one.
fn refuse_duplicates(key: &str, items: &[Located<String>], errors: &mut Vec<PolicyError>) {
    let mut seen: BTreeMap<&str, &Origin> = BTreeMap::new();
    for item in items {
        let meaning = meaning(key, &item.value);
        match seen.get(meaning) {
            Some(first) => {
                let problem =
                    format!("\"{meaning}\" is already in this list at {first}: remove it here");
                errors.push(PolicyError::new(item.origin.clone(), key, problem));
            }
            None => drop(seen.insert(meaning, &item.origin)),
        }
    }
}

/// Unwraps a value that every policy has, because the built-in `standard`, which every policy extends, has it.
pub(super) fn given<T>(value: Option<T>) -> T {
    value.expect("`standard` gives every key a value of its kind")
}

/// Typed accessors. Each returns `None` if the key has no value, or one of another kind.
impl Values {
    /// Returns the origin of a key's value.
    pub(super) fn origin(&self, key: &str) -> Option<&Origin> {
        self.0.get(key).map(|located| &located.origin)
    }

    pub(super) fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key).map(|located| &located.value)
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
            Value::List(list) => list.add.iter().map(item).collect(),
            _ => None,
        }
    }

    /// Returns the items that a text removes from an inherited list.
    pub(super) fn removed(&self, key: &str) -> &[Located<String>] {
        match self.value(key) {
            Some(Value::List(list)) => &list.remove,
            _ => &[],
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

    /// Returns a duration of a session. The inner `None` means never.
    #[expect(
        clippy::option_option,
        reason = "a key without a value differs from a key whose value is never"
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
            Self::List(list) => to.collect_seq(list.add.iter().map(|item| Item(&item.value))),
            Self::Variables(set) => {
                to.collect_map(set.iter().map(|(name, value)| (name, &value.value)))
            }
            Self::Limit(limit, amount) => limit.spec().unit.serialize(*amount, to),
            Self::Term(Some(time)) => Unit::Duration.serialize(*time, to),
            Self::Term(None) => to.serialize_str(NEVER),
        }
    }
}

/// A list item to serialize. An entry of `network.allow` with conditions is written as a table.
pub(super) struct Item<'a>(pub(super) &'a str);

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match rule_table::table_of(self.0) {
            Some(table) => table.serialize(to),
            None => to.serialize_str(self.0),
        }
    }
}

/// Serializes the values as a policy file, in the order of the table of keys.
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
