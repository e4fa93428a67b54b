//! Compares the outcome of a task with its `expect`. Pure, and runs in the host: the guest never receives the expected
//! result. The cost is proportional to the size of the compared data, which the limits bound.

mod numeric;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use self::numeric::Numeric;
use super::exact_json::{ExactJson, ExactNumber};
use crate::outcome::{Outcome, Status, Verdict, word_enum};

/// The expected result of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expect {
    /// The expected standard output.
    pub stdout: Option<String>,
    /// The expected value of the last expression.
    pub value: Option<ExactJson>,
    /// Which whitespace of the output is significant.
    pub whitespace: Whitespace,
    /// How much numbers may differ: absolutely, or relative to the expected number if that is above 1. If `None`, words
    /// of the output are compared as text.
    pub tolerance: Option<f64>,
}

word_enum! {
    /// Which whitespace is significant.
    #[derive(Default)]
    pub enum Whitespace {
        /// All but whitespace at the end of a line or of the output.
        #[default]
        Trailing = "trailing",
        /// Only whether words are separated by whitespace.
        Any = "any",
        /// All whitespace.
        Exact = "exact",
    }
}

impl Expect {
    /// Compares an outcome. Returns `None` for a run that was cancelled.
    pub fn judge(&self, outcome: &Outcome) -> Option<Verdict> {
        if outcome.status() == Status::Interrupted {
            return None;
        }
        if !outcome.is_ok() {
            return Some(Verdict::Failed);
        }
        let compared = self.compare(outcome);
        Some(compared.map_or_else(Verdict::Wrong, |()| Verdict::Pass))
    }

    fn compare(&self, outcome: &Outcome) -> Result<(), String> {
        if let Some(expected) = &self.stdout {
            self.stdout(expected, &outcome.stdout())?;
        }
        let Some(expected) = &self.value else {
            return Ok(());
        };
        let found = outcome.plain_value().unwrap_or_default();
        let tolerance = self.tolerance.unwrap_or(0.0);
        let mut path = "value".to_owned();
        Values { tolerance }.compare(expected, &found, &mut path)
    }

    fn stdout(&self, expected: &str, found: &str) -> Result<(), String> {
        match self.whitespace {
            Whitespace::Exact => {
                let same = |expected: &str, found: &str| expected == found;
                compare_pieces("line", expected.split('\n'), found.split('\n'), same)
            }
            Whitespace::Trailing => {
                let (expected, found) = (lines(expected), lines(found));
                let same = |expected: &str, found: &str| self.same_line(expected, found);
                compare_pieces("line", expected, found, same)
            }
            Whitespace::Any => {
                let (expected, found) = (expected.split_whitespace(), found.split_whitespace());
                let same = |expected: &str, found: &str| self.same_word(expected, found);
                compare_pieces("word", expected, found, same)
            }
        }
    }

    fn same_line(&self, expected: &str, found: &str) -> bool {
        if expected == found || self.tolerance.is_none() {
            return expected == found;
        }
        if !gaps(expected).eq(gaps(found)) {
            return false;
        }
        let mut found = found.split_whitespace();
        let mut expected = expected.split_whitespace();
        expected.all(|word| {
            found
                .next()
                .is_some_and(|found| self.same_word(word, found))
        }) && found.next().is_none()
    }

    fn same_word(&self, expected: &str, found: &str) -> bool {
        expected == found
            || self.tolerance.is_some_and(|tolerance| {
                let numbers = Numeric::of_word(expected).zip(Numeric::of_word(found));
                numbers.is_some_and(|(expected, found)| expected.is_near_to(&found, tolerance))
            })
    }
}

/// Returns the lines of a text without trailing whitespace.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_end().split('\n').map(str::trim_end)
}

/// Returns the whitespace before and between the words of a line.
fn gaps(line: &str) -> impl Iterator<Item = &str> {
    let gaps = line.split(|character: char| !character.is_whitespace());
    gaps.filter(|gap| !gap.is_empty())
}

/// Compares two texts piece by piece.
fn compare_pieces<'t>(
    noun: &str,
    mut expected: impl Iterator<Item = &'t str>,
    mut found: impl Iterator<Item = &'t str>,
    same: impl Fn(&str, &str) -> bool,
) -> Result<(), String> {
    for number in 1u64.. {
        let (expected, found) = (expected.next(), found.next());
        let (expected, found) = match (expected, found) {
            (None, None) => break,
            (Some(expected), Some(found)) if same(expected, found) => continue,
            (Some(expected), Some(found)) => {
                let start = shared(expected, found);
                (quote(expected, start), quote(found, start))
            }
            (Some(expected), None) => (quote(expected, 0), "the end".to_owned()),
            (None, Some(found)) => ("the end".to_owned(), quote(found, 0)),
        };
        return Err(format!(
            "stdout, {noun} {number}: expected {expected}, found {found}"
        ));
    }
    Ok(())
}

/// Returns the length of the common prefix in characters.
fn shared(one: &str, other: &str) -> usize {
    let pairs = one.chars().zip(other.chars());
    pairs.take_while(|(one, other)| one == other).count()
}

/// The maximum number of characters that a message quotes.
const MAX_SHOWN: usize = 60;

/// Quotes the part of a text around a character.
fn quote(text: &str, around: usize) -> String {
    let (before, part, after) = excerpt(text, around);
    format!("{before}{part:?}{after}")
}

/// Returns the part of a text around a character, with dots where it was cut.
fn excerpt(text: &str, around: usize) -> (&'static str, String, &'static str) {
    let start = around.saturating_sub(MAX_SHOWN / 3);
    let mut rest = text.chars().skip(start);
    let part: String = rest.by_ref().take(MAX_SHOWN).collect();
    let before = if start > 0 { "..." } else { "" };
    let after = if rest.next().is_some() { "..." } else { "" };
    (before, part, after)
}

/// Compares JSON values by the rules of Python equality, except that a boolean does not equal a number.
struct Values {
    tolerance: f64,
}

impl Values {
    fn compare(&self, expected: &ExactJson, found: &Json, path: &mut String) -> Result<(), String> {
        use ExactJson as Exact;
        let typed = found.get("type").and_then(Json::as_str);
        match (expected, found, typed) {
            (Exact::List(expected), Json::Array(found), _) => {
                self.items(expected, found.iter(), path)
            }
            (Exact::List(expected), _, Some("tuple")) => {
                self.items(expected, list(found, "items").iter(), path)
            }
            (Exact::List(expected), _, Some("namedtuple")) => {
                let fields = list(found, "fields").iter();
                self.items(expected, fields.map(|field| &field[1]), path)
            }
            (Exact::Object(expected), Json::Object(found), None) => {
                self.members(expected, found, path)
            }
            (Exact::Object(members), _, Some("dict")) => match texts(found) {
                Some(found) => self.members(members, &found, path),
                None => Err(difference(path, &expected.to_string(), &found.to_string())),
            },
            (Exact::Number(_), _, Some("numpy")) => self.compare(expected, &found["value"], path),
            (Exact::Number(number), ..) => self.number(number, found, path),
            _ if is_written_as(expected, found) => Ok(()),
            _ => Err(difference(path, &expected.to_string(), &text_of(found))),
        }
    }

    fn number(&self, expected: &ExactNumber, found: &Json, path: &str) -> Result<(), String> {
        let number = Numeric::of_value(found);
        if number.is_some_and(|found| found.is_near(expected, self.tolerance)) {
            return Ok(());
        }
        let (expected, found) = (expected.to_string(), text_of(found));
        // Long numbers may start with the same digits.
        let start = match expected.len().max(found.len()) {
            0..=MAX_SHOWN => 0,
            _ => shared(&expected, &found),
        };
        let part = |text: &str| {
            let (before, part, after) = excerpt(text, start);
            before.to_owned() + &part + after
        };
        Err(message(path, &part(&expected), &part(&found)))
    }

    fn items<'f>(
        &self,
        expected: &[ExactJson],
        found: impl ExactSizeIterator<Item = &'f Json>,
        path: &mut String,
    ) -> Result<(), String> {
        let (length, found_length) = (path.len(), found.len());
        for (number, (expected, found)) in expected.iter().zip(found).enumerate() {
            _ = write!(path, "[{number}]");
            self.compare(expected, found, path)?;
            path.truncate(length);
        }
        if expected.len() == found_length {
            return Ok(());
        }
        let count = |length: usize| format!("{length} elements");
        Err(message(path, &count(expected.len()), &count(found_length)))
    }

    fn members(
        &self,
        expected: &BTreeMap<String, ExactJson>,
        found: &Map<String, Json>,
        path: &mut String,
    ) -> Result<(), String> {
        let length = path.len();
        for (key, expected) in expected {
            _ = write!(path, "[{}]", quote(key, 0));
            let Some(found) = found.get(key) else {
                return Err(difference(path, &expected.to_string(), "no such key"));
            };
            self.compare(expected, found, path)?;
            path.truncate(length);
        }
        match found.iter().find(|(key, _)| !expected.contains_key(*key)) {
            None => Ok(()),
            Some((key, found)) => {
                _ = write!(path, "[{}]", quote(key, 0));
                Err(difference(path, "no such key", &text_of(found)))
            }
        }
    }
}

/// Returns the members of an encoded `dict`. `None` if one of its keys is not a string.
fn texts(dict: &Json) -> Option<Map<String, Json>> {
    let items = dict.get("items")?.as_array()?;
    let pair = |item: &Json| Some((item.get(0)?.as_str()?.to_owned(), item.get(1)?.clone()));
    let members: Option<Map<String, Json>> = items.iter().map(pair).collect();
    members.filter(|members| members.len() == items.len())
}

/// Returns the list under a key of an encoded value. Empty if the value is malformed.
fn list<'f>(found: &'f Json, key: &str) -> &'f [Json] {
    found
        .get(key)
        .and_then(Json::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Returns whether a value has exactly this JSON encoding.
fn is_written_as(expected: &ExactJson, found: &Json) -> bool {
    match (expected, found) {
        (ExactJson::Null, Json::Null) => true,
        (ExactJson::Bool(expected), Json::Bool(found)) => expected == found,
        (ExactJson::Text(expected), Json::String(found)) => expected == found,
        (ExactJson::Number(expected), Json::Number(_)) => {
            Numeric::of_value(found).is_some_and(|found| found.is_near(expected, 0.0))
        }
        (ExactJson::List(expected), Json::Array(found)) => {
            let mut pairs = expected.iter().zip(found);
            expected.len() == found.len() && pairs.all(|(one, other)| is_written_as(one, other))
        }
        (ExactJson::Object(expected), Json::Object(found)) => {
            let same = |(key, one): (&String, _)| {
                found
                    .get(key)
                    .is_some_and(|other| is_written_as(one, other))
            };
            expected.len() == found.len() && expected.iter().all(same)
        }
        _ => false,
    }
}

/// Formats a found value for a message.
fn text_of(found: &Json) -> String {
    Numeric::of_value(found).map_or_else(|| found.to_string(), |number| number.to_string())
}

/// Describes a difference by the start of both values.
fn difference(path: &str, expected: &str, found: &str) -> String {
    let start = |text: &str| {
        let (_, part, after) = excerpt(text, 0);
        part + after
    };
    message(path, &start(expected), &start(found))
}

fn message(path: &str, expected: &str, found: &str) -> String {
    format!("{path}: expected {expected}, found {found}")
}

#[cfg(test)]
mod tests;
