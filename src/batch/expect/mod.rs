//! Compares the outcome of a task with what the task expects. Pure, and in the host: the guest never gets
//! what is expected. The work grows with the size of what is compared, which limits bound.

mod numeric;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Map, Value as Json};

use self::numeric::Numeric;
use super::exact_json::{ExactJson, ExactNumber};
use crate::outcome::{Outcome, Status, Verdict, word_enum};

/// What a task expects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expect {
    /// The standard output.
    pub stdout: Option<String>,
    /// The value of the last expression.
    pub value: Option<ExactJson>,
    /// Which whitespace of the output counts.
    pub whitespace: Whitespace,
    /// How much numbers may differ: absolutely, or in proportion to the expected one if that is above 1.
    /// Without it, words of the output are compared as text.
    pub tolerance: Option<f64>,
}

word_enum! {
    /// Which whitespace counts.
    #[derive(Default)]
    pub enum Whitespace {
        /// None at the end of a line or of the output.
        #[default]
        Trailing = "trailing",
        /// Only that there is some between two words.
        Any = "any",
        /// Every character.
        Exact = "exact",
    }
}

impl Expect {
    /// Compares. Gives no verdict on a run that was cancelled.
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
                pieces("line", expected.split('\n'), found.split('\n'), same)
            }
            Whitespace::Trailing => {
                let (expected, found) = (lines(expected), lines(found));
                let same = |expected: &str, found: &str| self.same_line(expected, found);
                pieces("line", expected, found, same)
            }
            Whitespace::Any => {
                let (expected, found) = (expected.split_whitespace(), found.split_whitespace());
                let same = |expected: &str, found: &str| self.same_word(expected, found);
                pieces("word", expected, found, same)
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

/// The lines of a text, without whitespace at the end of each and of all.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_end().split('\n').map(str::trim_end)
}

/// The spaces before and between the words of a line.
fn gaps(line: &str) -> impl Iterator<Item = &str> {
    let gaps = line.split(|character: char| !character.is_whitespace());
    gaps.filter(|gap| !gap.is_empty())
}

/// Compares two texts piece by piece.
fn pieces<'t>(
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

/// The number of characters at the start that both have.
fn shared(one: &str, other: &str) -> usize {
    let pairs = one.chars().zip(other.chars());
    pairs.take_while(|(one, other)| one == other).count()
}

/// The most characters of a text in a message.
const MOST_SHOWN: usize = 60;

/// A part of a text around a character, in quotes.
fn quote(text: &str, around: usize) -> String {
    let (before, part, after) = excerpt(text, around);
    format!("{before}{part:?}{after}")
}

/// A part of a text around a character, with dots where it does not begin or end there.
fn excerpt(text: &str, around: usize) -> (&'static str, String, &'static str) {
    let start = around.saturating_sub(MOST_SHOWN / 3);
    let mut rest = text.chars().skip(start);
    let part: String = rest.by_ref().take(MOST_SHOWN).collect();
    let before = if start > 0 { "..." } else { "" };
    let after = if rest.next().is_some() { "..." } else { "" };
    (before, part, after)
}

/// Compares JSON values as Python compares what they stand for, except that a truth value is no number.
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
        // Long ones may begin with the same digits.
        let start = match expected.len().max(found.len()) {
            0..=MOST_SHOWN => 0,
            _ => shared(&expected, &found),
        };
        let part = |text: &str| {
            let (before, part, after) = excerpt(text, start);
            before.to_owned() + &part + after
        };
        Err(says(path, &part(&expected), &part(&found)))
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
        Err(says(path, &count(expected.len()), &count(found_length)))
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

/// The members of a `dict` that has a key `type`. `None` if it has keys that are no texts.
fn texts(dict: &Json) -> Option<Map<String, Json>> {
    let items = dict.get("items")?.as_array()?;
    let pair = |item: &Json| Some((item.get(0)?.as_str()?.to_owned(), item.get(1)?.clone()));
    let members: Option<Map<String, Json>> = items.iter().map(pair).collect();
    members.filter(|members| members.len() == items.len())
}

/// The list in a value's notation under this key. Empty if the value is malformed.
fn list<'f>(found: &'f Json, key: &str) -> &'f [Json] {
    found
        .get(key)
        .and_then(Json::as_array)
        .map_or(&[], Vec::as_slice)
}

/// Whether a value is written as this in the notation of results.
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

/// A found value as a message shows it.
fn text_of(found: &Json) -> String {
    Numeric::of_value(found).map_or_else(|| found.to_string(), |number| number.to_string())
}

/// The starts of both.
fn difference(path: &str, expected: &str, found: &str) -> String {
    let start = |text: &str| {
        let (_, part, after) = excerpt(text, 0);
        part + after
    };
    says(path, &start(expected), &start(found))
}

fn says(path: &str, expected: &str, found: &str) -> String {
    format!("{path}: expected {expected}, found {found}")
}

#[cfg(test)]
mod tests;
