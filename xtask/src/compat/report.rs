//! What passed outside and not inside, by cause.

use std::collections::{BTreeMap, BTreeSet};

use super::Endings;
use super::places::Place;
use crate::document::{head, row};

/// How many items are named for one cause.
const NAMED: usize = 6;

/// The counts of several items.
pub struct Report {
    at: Vec<Place>,
    passed: Vec<usize>,
    causes: BTreeMap<String, Cause>,
}

#[derive(Default)]
struct Cause {
    /// How many tests each place inside lost by it.
    lost: Vec<usize>,
    items: BTreeSet<String>,
}

impl Report {
    /// For these places; the first is outside.
    pub fn new(at: &[Place]) -> Self {
        Self {
            at: at.to_vec(),
            passed: vec![0; at.len()],
            causes: BTreeMap::new(),
        }
    }

    /// Adds an item: at each place its tests, or why there is no answer. Returns a line that says it.
    pub fn add(&mut self, item: &str, found: &[(Endings, Option<String>)]) -> String {
        let Some(((outside, _), inside)) = found.split_first() else {
            return String::new();
        };
        let passed = |how: &&String| *how == "passed";
        let counted = outside.values().filter(passed).count();
        self.passed[0] += counted;
        let mut line = format!("{item}: {counted}");
        for (place, (endings, broken)) in inside.iter().enumerate() {
            let mut kept = 0;
            for (test, _) in outside.iter().filter(|(_, how)| passed(how)) {
                let how = endings.get(test).map(String::as_str);
                if how == Some("passed") {
                    kept += 1;
                    continue;
                }
                let how = how.or(broken.as_deref()).unwrap_or("it is not there");
                let cause = self.causes.entry(in_general(how)).or_default();
                cause.lost.resize(inside.len(), 0);
                cause.lost[place] += 1;
                cause.items.insert(item.to_owned());
            }
            self.passed[place + 1] += kept;
            line.extend([
                ", ",
                &self.at[place + 1].to_string(),
                " ",
                &kept.to_string(),
            ]);
        }
        line
    }

    /// The tables.
    pub fn in_words(&self, title: &str, what: &str) -> String {
        let mut text = format!("{title}\n\n");
        text += &head(
            self.at
                .iter()
                .map(|place| format!("{what} that pass {place}")),
        );
        let outside = self.passed[0].max(1);
        let of_outside = |passed: &usize| {
            let tenths = passed * 1_000 / outside;
            format!("{passed} ({}.{} %)", tenths / 10, tenths % 10)
        };
        let first = self.passed.iter().take(1).map(usize::to_string);
        text += &row(first.chain(self.passed.iter().skip(1).map(of_outside)));
        if self.causes.is_empty() {
            return text;
        }
        text += "\nWhat passes outside only:\n\n";
        let inside = self.at.iter().skip(1).map(Place::to_string);
        text += &head(
            ["cause".to_owned()]
                .into_iter()
                .chain(inside)
                .chain(["in".to_owned()]),
        );
        let mut causes: Vec<_> = self.causes.iter().collect();
        causes.sort_by_key(|(_, cause)| std::cmp::Reverse(cause.lost.iter().sum::<usize>()));
        for (name, cause) in causes {
            let lost = cause.lost.iter().map(usize::to_string);
            let name = format!("`{}`", name.replace('|', "\\|").replace('`', "'"));
            text += &row([name].into_iter().chain(lost).chain([cause.named()]));
        }
        text
    }
}

impl Cause {
    fn named(&self) -> String {
        let named: Vec<&str> = self.items.iter().map(String::as_str).take(NAMED).collect();
        let more = self.items.len() - named.len();
        match more {
            0 => named.join(", "),
            more => format!("{} and {more} more", named.join(", ")),
        }
    }
}

/// A reason without what differs from test to test: numbers, paths and quoted names.
fn in_general(how: &str) -> String {
    let mut general = String::new();
    let mut quote = None;
    for letter in how.chars() {
        match quote {
            Some(open) if letter == open => {
                quote = None;
                general.push_str("...");
                general.push(letter);
            }
            Some(_) => {}
            None if letter == '\'' || letter == '"' => {
                quote = Some(letter);
                general.push(letter);
            }
            None if letter.is_ascii_digit() => {
                if !general.ends_with('0') {
                    general.push('0');
                }
            }
            None => general.push(letter),
        }
    }
    general.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_names_and_numbers_are_one() {
        let one = "failed: PermissionError: [Errno 1] Operation not permitted: '/a/b'";
        let other = "failed: PermissionError: [Errno 13] Operation not permitted: '/c'";
        assert_eq!(in_general(one), in_general(other));
    }

    #[test]
    fn what_fails_outside_too_is_no_difference() {
        let endings = |how: [&str; 3]| {
            let names = ["a", "b", "c"].map(str::to_owned);
            (
                names.into_iter().zip(how.map(str::to_owned)).collect(),
                None,
            )
        };
        let mut report = Report::new(&[Place::Outside, Place::Run]);
        let outside = endings(["passed", "passed", "failed: x"]);
        let inside = endings(["passed", "skipped: y", "failed: z"]);
        assert_eq!(
            report.add("test_a", &[outside, inside]),
            "test_a: 2, by `run` 1"
        );
        let text = report.in_words("A title", "tests");
        assert!(text.contains("| 2 | 1 (50.0 %) |"), "{text}");
        assert!(text.contains("| `skipped: y` | 1 | test_a |"), "{text}");
        assert!(!text.contains("failed: z"), "{text}");
    }

    #[test]
    fn an_item_without_an_answer_loses_every_test() {
        let outside: Endings = [("a".to_owned(), "passed".to_owned())].into();
        let broken = (Endings::new(), Some("it took too long".to_owned()));
        let mut report = Report::new(&[Place::Outside, Place::Run]);
        report.add("test_a", &[(outside, None), broken]);
        let text = report.in_words("A title", "tests");
        assert!(
            text.contains("| `it took too long` | 1 | test_a |"),
            "{text}"
        );
    }
}
