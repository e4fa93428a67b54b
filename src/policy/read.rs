//! Reads a policy's text by the table of keys. An error names the key and the remedy.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use super::error::{PolicyError, PolicyProblem};
use super::keys::{
    Grammar, Key, Kind, NEVER, SECTIONS, VALUE, VARIABLE, find, is_section, keys_of,
};
use super::layer::Source;
use super::origin::Located;
use super::suggest::closest;
use super::values::{Value, Values};
use crate::outcome::Unit;

/// Reads a text. Relative paths in it start from the directory.
pub(super) fn read(
    text: &str,
    source: &Source,
    directory: Option<&Path>,
) -> Result<Values, PolicyError> {
    let document = DeTable::parse(text).map_err(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let message = error.message().to_owned();
        PolicyError::of_file(source.origin(start), PolicyProblem::Syntax { message })
    })?;
    let mut entries = entries("", document.get_ref());
    entries.sort_by_key(|entry| entry.start);
    if let Some(unknown) = entries.iter().find(|entry| entry.is_unknown()) {
        let hint = hint(unknown.section, unknown.name);
        let problem = PolicyProblem::UnknownKey { hint };
        let origin = source.origin(unknown.start);
        return Err(PolicyError::new(origin, unknown.path(), problem));
    }
    let reader = Reader { source, directory };
    let mut values = Values::default();
    for entry in entries {
        let key = entry.key().ok_or_else(|| {
            let message = wrong_type(entry.value, "a section of keys, such as [limits]");
            reader.refused(entry.start, entry.path(), message)
        })?;
        let value = reader.value(&key, &entry)?;
        values.set(key.name, Located::new(value, source.origin(entry.start)));
    }
    Ok(values)
}

/// A key in the text, and its value.
struct Entry<'a> {
    /// The section, empty for the top of the file.
    section: &'a str,
    name: &'a str,
    start: usize,
    value: &'a DeValue<'a>,
}

impl Entry<'_> {
    fn key(&self) -> Option<Key> {
        find(self.section, self.name)
    }

    fn is_unknown(&self) -> bool {
        let is_section = self.section.is_empty() && is_section(self.name);
        !is_section && self.key().is_none()
    }

    fn path(&self) -> String {
        dotted(self.section, self.name)
    }
}

fn dotted(section: &str, name: &str) -> String {
    match section {
        "" => name.to_owned(),
        section => format!("{section}.{name}"),
    }
}

/// The keys of a table and of the sections in it.
fn entries<'a>(section: &'a str, table: &'a DeTable<'a>) -> Vec<Entry<'a>> {
    let of_key = |(name, value): (&'a Spanned<DeString>, &'a Spanned<DeValue>)| {
        let (start, name) = (name.span().start, &**name.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) if section.is_empty() && is_section(name) => entries(name, inner),
            value => vec![Entry {
                section,
                name,
                start,
                value,
            }],
        }
    };
    table.iter().flat_map(of_key).collect()
}

/// What to write in place of an unknown key.
fn hint(section: &str, name: &str) -> String {
    let mut siblings: Vec<&str> = keys_of(section).map(|key| key.parts().1).collect();
    if section.is_empty() {
        siblings.extend(SECTIONS.map(|(section, _)| section));
    }
    siblings.sort_unstable();
    let near = closest(name, siblings.iter().copied()).map(|near| dotted(section, near));
    let elsewhere = || {
        let mut sections = SECTIONS.iter();
        let key = sections.find_map(|(section, _)| find(section, name))?;
        Some(key.name.to_owned())
    };
    match (near.or_else(elsewhere), section) {
        (Some(meant), _) => format!("did you mean `{meant}`?"),
        (None, "") => format!("a policy has {}", siblings.join(", ")),
        (None, section) => format!("[{section}] has {}", siblings.join(", ")),
    }
}

/// Reads the values of a text.
struct Reader<'a> {
    source: &'a Source,
    directory: Option<&'a Path>,
}

impl Reader<'_> {
    fn refused(&self, start: usize, path: String, message: String) -> PolicyError {
        let problem = PolicyProblem::WrongValue { message };
        PolicyError::new(self.source.origin(start), path, problem)
    }

    fn value(&self, key: &Key, entry: &Entry) -> Result<Value, PolicyError> {
        let value = match (&key.kind, entry.value) {
            (Kind::Flag, DeValue::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (Kind::Word(words), DeValue::String(word)) => known(word, words).map(Value::Text),
            (Kind::Text(grammar), value) => self.text(grammar, value).map(Value::Text),
            (Kind::List(grammar), DeValue::Array(items)) => {
                let items = items.iter().map(|item| {
                    let start = item.span().start;
                    let text = self.text(grammar, item.get_ref());
                    let text = text.map_err(|why| self.refused(start, entry.path(), why))?;
                    Ok(Located::new(text, self.source.origin(start)))
                });
                return items.collect::<Result<_, _>>().map(Value::List);
            }
            (Kind::Variables, DeValue::Table(set)) => return self.variables(set, entry),
            (Kind::Limit(limit), value) => {
                let amount = limit.spec().unit.read(value);
                amount.map(|amount| Value::Limit(*limit, amount))
            }
            (Kind::Term, DeValue::String(text)) if text == NEVER => Ok(Value::Term(None)),
            (Kind::Term, DeValue::String(text)) => match Unit::Duration.parse(text) {
                Ok(time) => Ok(Value::Term(Some(time))),
                Err(why) => Err(format!("{why}, or \"{NEVER}\"")),
            },
            (kind, other) => Err(wrong_type(other, &kind.expected())),
        };
        value.map_err(|why| self.refused(entry.start, entry.path(), why))
    }

    fn text(&self, grammar: &Grammar, value: &DeValue) -> Result<String, String> {
        match value {
            DeValue::String(text) => (grammar.read)(text, self.directory),
            other => Err(wrong_type(other, grammar.expected)),
        }
    }

    fn variables(&self, set: &DeTable, entry: &Entry) -> Result<Value, PolicyError> {
        let variables = set.iter().map(|(name, value)| {
            let (start, name) = (name.span().start, name.get_ref().to_string());
            let path = format!("{}.{name}", entry.path());
            let text = self.text(&VALUE, value.get_ref());
            let text = text.map_err(|why| self.refused(start, path, why))?;
            (VARIABLE.read)(&name, None).map_err(|why| self.refused(start, entry.path(), why))?;
            Ok((name, Located::new(text, self.source.origin(start))))
        });
        variables.collect::<Result<_, _>>().map(Value::Variables)
    }
}

/// One of the words.
fn known(word: &str, words: &[&str]) -> Result<String, String> {
    if words.contains(&word) {
        return Ok(word.to_owned());
    }
    let quoted: Vec<String> = words.iter().map(|word| format!("\"{word}\"")).collect();
    let choices = quoted.join(" or ");
    Err(match closest(word, words.iter().copied()) {
        Some(near) => format!("\"{word}\" is not known: did you mean \"{near}\"? Write {choices}"),
        None => format!("\"{word}\" is not known: write {choices}"),
    })
}

impl Kind {
    /// What to write, for a value of the wrong type.
    fn expected(&self) -> String {
        match self {
            Self::Flag => "true or false without quotes".to_owned(),
            Self::Word(words) => format!("one of \"{}\"", words.join("\" \"")),
            Self::Text(grammar) => grammar.expected.to_owned(),
            Self::List(_) => "a list in brackets, such as [\"a\", \"b\"]".to_owned(),
            Self::Variables => "a table, such as { NAME = \"value\" }".to_owned(),
            Self::Limit(limit) => limit.spec().unit.expected().to_owned(),
            Self::Term => format!("a duration in quotes, such as \"1h\", or \"{NEVER}\""),
        }
    }
}

/// Why a value of another type is refused.
pub(super) fn wrong_type(value: &DeValue, expected: &str) -> String {
    let found = match value {
        DeValue::String(text) => format!("string {text:?}"),
        DeValue::Integer(number) => format!("integer `{number}`"),
        DeValue::Float(number) => format!("floating point `{number}`"),
        DeValue::Boolean(flag) => format!("boolean `{flag}`"),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    };
    format!("{found} is the wrong type: write {expected}")
}
