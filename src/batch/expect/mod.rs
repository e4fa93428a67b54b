//! Compares the outcome of a task with what the task expects. Pure, and in the host: the guest never gets
//! what is expected. The work grows with the size of what is compared, which limits bound.

use std::fmt::Write as _;

use serde_json::{Map, Number, Value as Json};

use crate::outcome::{Outcome, Status, Verdict, word_enum};

/// What a task expects.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Expect {
    /// The standard output.
    pub stdout: Option<String>,
    /// The value of the last expression.
    pub value: Option<Json>,
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
                let numbers = number(expected).zip(number(found));
                numbers.is_some_and(|(expected, found)| expected.is_near(found, tolerance))
            })
    }
}

/// The lines of a text, without whitespace at the end of each and of all.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.trim_end().split('\n').map(str::trim_end)
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
    let start = around.saturating_sub(MOST_SHOWN / 3);
    let mut rest = text.chars().skip(start);
    let part: String = rest.by_ref().take(MOST_SHOWN).collect();
    let (before, after) = (
        if start > 0 { "..." } else { "" },
        if rest.next().is_some() { "..." } else { "" },
    );
    format!("{before}{part:?}{after}")
}

/// A number of the output or of a value.
#[derive(Clone, Copy, Debug)]
enum Numeric {
    /// Compared exactly.
    Whole(i128),
    Float(f64),
}

impl Numeric {
    fn is_near(self, other: Self, tolerance: f64) -> bool {
        let (difference, size) = match (self, other) {
            (Self::Whole(one), Self::Whole(other)) => {
                // A tolerance is no more exact than a float.
                #[allow(clippy::cast_precision_loss)]
                let parts = (one.abs_diff(other) as f64, one.unsigned_abs() as f64);
                parts
            }
            (one, other) => {
                let (one, other) = (one.float(), other.float());
                ((one - other).abs(), one.abs())
            }
        };
        difference <= tolerance * size.max(1.0)
    }

    fn float(self) -> f64 {
        match self {
            #[allow(clippy::cast_precision_loss)]
            Self::Whole(number) => number as f64,
            Self::Float(number) => number,
        }
    }
}

/// The most characters of a number, so that a word of a megabyte is no number.
const LONGEST_NUMBER: usize = 400;

/// The number that a word is: finite, in digits. A whole number of more than 38 digits is none, because a
/// float would be equal to its neighbours.
fn number(word: &str) -> Option<Numeric> {
    let digits = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    if word.len() > LONGEST_NUMBER || !word.bytes().all(digits) {
        return None;
    }
    if let Ok(whole) = word.parse() {
        return Some(Numeric::Whole(whole));
    }
    let is_whole = !word.contains(['.', 'e', 'E']);
    let float = word.parse().ok().filter(|float: &f64| float.is_finite());
    float.filter(|_| !is_whole).map(Numeric::Float)
}

/// Compares JSON values as Python compares what they stand for, except that a truth value is no number.
struct Values {
    tolerance: f64,
}

impl Values {
    fn compare(&self, expected: &Json, found: &Json, path: &mut String) -> Result<(), String> {
        let typed = found.get("type").and_then(Json::as_str);
        let same = match (expected, found, typed) {
            (Json::Array(expected), Json::Array(found), _) => {
                return self.items(expected, found, path);
            }
            (Json::Array(expected), _, Some("tuple")) => {
                let none = Vec::new();
                let found = found.get("items").and_then(Json::as_array);
                return self.items(expected, found.unwrap_or(&none), path);
            }
            (Json::Object(expected), Json::Object(found), None) => {
                return self.members(expected, found, path);
            }
            (Json::Object(expected), _, Some("dict")) => {
                return self.pairs(expected, found, path);
            }
            (Json::Number(_), _, Some("numpy")) => {
                return self.compare(expected, &found["value"], path);
            }
            (Json::Number(expected), Json::Number(found), _) => self.same(expected, found),
            (Json::Number(expected), _, Some("int")) => {
                let hex = found["hex"].as_str().unwrap_or_default();
                let found = i128::from_str_radix(hex, 16).ok().map(Numeric::Whole);
                let near = |(one, other): (Numeric, Numeric)| one.is_near(other, self.tolerance);
                numeric(expected).zip(found).is_some_and(near)
            }
            (expected, found, _) => expected == found,
        };
        if same {
            return Ok(());
        }
        Err(difference(path, &shown(expected), &shown(found)))
    }

    fn same(&self, expected: &Number, found: &Number) -> bool {
        let near = |(one, other): (Numeric, Numeric)| one.is_near(other, self.tolerance);
        numeric(expected).zip(numeric(found)).is_some_and(near)
    }

    fn items(&self, expected: &[Json], found: &[Json], path: &mut String) -> Result<(), String> {
        let length = path.len();
        for (number, (expected, found)) in expected.iter().zip(found).enumerate() {
            _ = write!(path, "[{number}]");
            self.compare(expected, found, path)?;
            path.truncate(length);
        }
        if expected.len() == found.len() {
            return Ok(());
        }
        let count = |items: &[Json]| format!("{} elements", items.len());
        Err(difference(path, &count(expected), &count(found)))
    }

    fn members(
        &self,
        expected: &Map<String, Json>,
        found: &Map<String, Json>,
        path: &mut String,
    ) -> Result<(), String> {
        let length = path.len();
        for (key, expected) in expected {
            _ = write!(path, "[{}]", quote(key, 0));
            let Some(found) = found.get(key) else {
                return Err(difference(path, &shown(expected), "no such key"));
            };
            self.compare(expected, found, path)?;
            path.truncate(length);
        }
        match found.iter().find(|(key, _)| !expected.contains_key(*key)) {
            None => Ok(()),
            Some((key, found)) => {
                _ = write!(path, "[{}]", quote(key, 0));
                Err(difference(path, "no such key", &shown(found)))
            }
        }
    }

    /// Compares with a `dict` that has a key `type`, or keys that are no texts.
    fn pairs(
        &self,
        expected: &Map<String, Json>,
        found: &Json,
        path: &mut String,
    ) -> Result<(), String> {
        let items = found.get("items").and_then(Json::as_array);
        let pair = |item: &Json| Some((item.get(0)?.as_str()?.to_owned(), item.get(1)?.clone()));
        let object: Option<Map<String, Json>> = items.into_iter().flatten().map(pair).collect();
        match object {
            Some(object) if Some(object.len()) == items.map(Vec::len) => {
                self.members(expected, &object, path)
            }
            _ => {
                let expected = Json::Object(expected.clone());
                Err(difference(path, &shown(&expected), &shown(found)))
            }
        }
    }
}

fn numeric(number: &Number) -> Option<Numeric> {
    let whole = number.as_i64().map(i128::from);
    let whole = whole.or_else(|| number.as_u64().map(i128::from));
    let float = || number.as_f64().map(Numeric::Float);
    whole.map(Numeric::Whole).or_else(float)
}

fn difference(path: &str, expected: &str, found: &str) -> String {
    format!("{path}: expected {expected}, found {found}")
}

/// The start of a value's JSON.
fn shown(value: &Json) -> String {
    let text = value.to_string();
    let mut characters = text.chars();
    let start: String = characters.by_ref().take(MOST_SHOWN).collect();
    match characters.next() {
        Some(_) => start + "...",
        None => start,
    }
}

#[cfg(test)]
mod tests;
