//! Parses a policy text according to the table of keys. It reports all errors, each with its key and remedy.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeArray, DeString, DeTable, DeValue};

use super::error::PolicyError;
use super::keys::{
    Grammar, Key, Kind, NEVER, SECTIONS, VALUE, VARIABLE, find, is_section, keys_of,
};
use super::layer::Source;
use super::origin::Located;
use super::rule_table;
use super::suggest::closest;
use super::values::{ListChange, Value, Values};
use crate::outcome::Unit;

/// Parses a text and returns its valid values, and the errors of the others. Relative paths are resolved against
/// `directory`.
///
/// # Errors
/// If the text is not TOML. Returns only the syntax errors, because recovered values may not be what the author meant.
pub(super) fn read(
    text: &str,
    source: &Source,
    directory: Option<&Path>,
) -> Result<(Values, Vec<PolicyError>), Vec<PolicyError>> {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(syntax(&errors, source));
    }
    let mut entries = entries("", document.get_ref());
    entries.sort_by_key(|entry| entry.start);
    let mut reader = Reader {
        source,
        directory,
        errors: Vec::new(),
    };
    let mut values = Values::default();
    for entry in entries {
        if let Some((key, value)) = reader.entry(&entry) {
            values.set(key, Located::new(value, source.origin(entry.start)));
        }
    }
    Ok((values, reader.errors))
}

/// Returns the first error of each line. Later errors of a line mostly follow from the first.
fn syntax(errors: &[toml::de::Error], source: &Source) -> Vec<PolicyError> {
    let mut lines = BTreeSet::new();
    let first_of_its_line = errors.iter().filter_map(|error| {
        let start = error.span().map_or(0, |span| span.start);
        let origin = source.origin(start);
        let message = error.message();
        let is_first = lines.insert(origin.line);
        let problem = format!("this is not valid TOML ({message}): fix the syntax here");
        is_first.then(|| PolicyError::of_file(origin, problem))
    });
    first_of_its_line.collect()
}

/// A key in the text, and its value.
struct Entry<'a> {
    /// The section. Empty for a top-level key.
    section: &'a str,
    name: &'a str,
    start: usize,
    value: &'a DeValue<'a>,
}

impl Entry<'_> {
    fn key(&self) -> Option<Key> {
        find(self.section, self.name)
    }

    /// Returns whether the entry assigns a plain value to a section.
    fn is_section(&self) -> bool {
        self.section.is_empty() && is_section(self.name)
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

/// Returns the entries of a table and of its sections.
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

/// Option names of other tools, and the keys with the same meaning.
const OTHER_WORDS: [(&str, &str); 12] = [
    ("bind", "filesystem.read"),
    ("cpus", "limits.cores"),
    ("env", "env.set.NAME"),
    ("filesystem", "filesystem.read"),
    ("imports", "imports.allow"),
    ("mem", "limits.memory"),
    ("mount", "filesystem.read"),
    ("net", "network.mode"),
    ("network", "network.mode"),
    ("python", "python.interpreter"),
    ("timeout", "limits.wall"),
    ("volume", "filesystem.read"),
];

/// Returns the key that a word probably means: a key without its section, or an option name of another tool.
pub(crate) fn meant(word: &str) -> Option<&'static str> {
    let mut sections = SECTIONS.iter();
    let key = sections.find_map(|(section, _)| find(section, word));
    let other = OTHER_WORDS.iter().find(|(other, _)| *other == word);
    key.map(|key| key.name)
        .or_else(|| other.map(|(_, key)| *key))
}

/// Returns the remedy for an unknown key.
fn hint(section: &str, name: &str) -> String {
    let mut siblings: Vec<&str> = keys_of(section).map(|key| key.parts().1).collect();
    if section.is_empty() {
        siblings.extend(SECTIONS.map(|(section, _)| section));
    }
    siblings.sort_unstable();
    let near = closest(name, siblings.iter().copied()).map(|near| dotted(section, near));
    if let Some(near) = near {
        return format!("did you mean `{near}`?");
    }
    match (meant(name), section) {
        (Some(key), "") => format!("did you mean `{key}`?"),
        (Some(key), section) if key.starts_with(&dotted(section, "")) => {
            format!("did you mean `{key}`?")
        }
        (Some(key), section) => format!("it is not a key of [{section}]: write `{key}`"),
        (None, "") => format!("a policy has {}", siblings.join(", ")),
        (None, section) => format!("[{section}] has {}", siblings.join(", ")),
    }
}

/// Parses the values of a text and collects the errors.
struct Reader<'a> {
    source: &'a Source,
    directory: Option<&'a Path>,
    errors: Vec<PolicyError>,
}

impl Reader<'_> {
    /// Returns the value, or records the error and returns `None`.
    fn accept<T>(&mut self, start: usize, path: String, read: Result<T, String>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(problem) => {
                let origin = self.source.origin(start);
                self.errors.push(PolicyError::new(origin, path, problem));
                None
            }
        }
    }

    fn entry(&mut self, entry: &Entry) -> Option<(&'static str, Value)> {
        let problem = match entry.key() {
            Some(key) => return Some((key.name, self.value(&key, entry)?)),
            None if entry.is_section() => {
                let key = meant(entry.name).unwrap_or("limits.wall");
                let expected = format!("one of its keys, such as `{key}`");
                wrong_type(entry.value, &expected)
            }
            None => format!("unknown key: {}", hint(entry.section, entry.name)),
        };
        self.accept(entry.start, entry.path(), Err(problem))
    }

    fn value(&mut self, key: &Key, entry: &Entry) -> Option<Value> {
        let value = match (&key.kind, entry.value) {
            (Kind::Flag, DeValue::Boolean(flag)) => Ok(Value::Flag(*flag)),
            (Kind::Word(words), DeValue::String(word)) => keyword(word, words).map(Value::Text),
            (Kind::Text(grammar), value) => self.text(grammar, value).map(Value::Text),
            (Kind::List(_) | Kind::Rules, DeValue::Array(items)) => {
                let add = self.items(key.kind, items, &entry.path());
                let remove = Vec::new();
                return Some(Value::List(ListChange { remove, add }));
            }
            (Kind::List(_) | Kind::Rules, DeValue::Table(change)) => {
                return Some(Value::List(self.change(key.kind, change, entry)));
            }
            (Kind::Variables, DeValue::Table(set)) => {
                return Some(Value::Variables(self.variables(set, entry)));
            }
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
        self.accept(entry.start, entry.path(), value)
    }

    /// Parses the items of a list. Items to remove from a list of rules are hosts.
    fn items(&mut self, kind: Kind, items: &DeArray, path: &str) -> Vec<Located<String>> {
        let read = items.iter().filter_map(|item| {
            let start = item.span().start;
            let text = match kind {
                Kind::List(grammar) => self.text(&grammar, item.get_ref()).map_err(|it| vec![it]),
                _ => rule_table::read(item.get_ref()),
            };
            let origin = self.source.origin(start);
            match text {
                Ok(text) => Some(Located::new(text, origin)),
                Err(problems) => {
                    let error =
                        |problem| PolicyError::new(origin.clone(), path.to_owned(), problem);
                    self.errors.extend(problems.into_iter().map(error));
                    None
                }
            }
        });
        read.collect()
    }

    /// Parses a change of a list: `{ remove = ["a"], add = ["b"] }`.
    fn change(&mut self, kind: Kind, change: &DeTable, entry: &Entry) -> ListChange {
        let mut read = ListChange::default();
        for (name, value) in change {
            let path = format!("{}.{}", entry.path(), name.get_ref());
            match (&**name.get_ref(), value.get_ref()) {
                ("remove", DeValue::Array(items)) => {
                    read.remove = self.items(kind, items, &path);
                }
                ("add", DeValue::Array(items)) => read.add = self.items(kind, items, &path),
                ("remove" | "add", other) => {
                    let refused = wrong_type(other, &kind.expected());
                    self.accept(value.span().start, path, Err::<(), _>(refused));
                }
                _ => {
                    let unknown = "unknown key: the keys that change a list are `remove` and `add`";
                    let start = name.span().start;
                    self.accept(start, path, Err::<(), _>(unknown.to_owned()));
                }
            }
        }
        read
    }

    fn text(&self, grammar: &Grammar, value: &DeValue) -> Result<String, String> {
        match value {
            DeValue::String(text) => (grammar.read)(text, self.directory),
            other => Err(wrong_type(other, grammar.expected)),
        }
    }

    fn variables(&mut self, set: &DeTable, entry: &Entry) -> BTreeMap<String, Located<String>> {
        let variables = set.iter().filter_map(|(name, value)| {
            let (start, name) = (name.span().start, name.get_ref().to_string());
            let path = format!("{}.{name}", entry.path());
            let text = self.text(&VALUE, value.get_ref());
            let text = self.accept(start, path, text)?;
            self.accept(start, entry.path(), (VARIABLE.read)(&name, None))?;
            Some((name, Located::new(text, self.source.origin(start))))
        });
        variables.collect()
    }
}

/// Checks that a word is one of the keywords.
fn keyword(word: &str, words: &[&str]) -> Result<String, String> {
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
    /// Returns the remedy for a value of the wrong type.
    fn expected(&self) -> String {
        match self {
            Self::Flag => "true or false without quotes".to_owned(),
            Self::Word(words) => format!("one of \"{}\"", words.join("\" \"")),
            Self::Text(grammar) => grammar.expected.to_owned(),
            Self::Rules => {
                "a list in brackets, such as [\"api.github.com\", { host = \"*.pypi.org\" }]"
                    .to_owned()
            }
            Self::List(_) => "a list in brackets, such as [\"a\", \"b\"]".to_owned(),
            Self::Variables => "a table, such as { NAME = \"value\" }".to_owned(),
            Self::Limit(limit) => limit.spec().unit.expected().to_owned(),
            Self::Term => format!("a duration in quotes, such as \"1h\", or \"{NEVER}\""),
        }
    }
}

/// Formats the error for a value of the wrong type.
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
