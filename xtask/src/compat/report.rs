//! Reports what passed outside and not inside, by cause.

use std::collections::{BTreeMap, BTreeSet};

use super::Found;
use super::places::Place;
use crate::document::{head, row};

/// The number of items that are named for one cause.
const NAMED: usize = 6;

/// Counts over several items.
pub struct Report {
    at: Vec<Place>,
    items: usize,
    left_out: Vec<String>,
    passed: Vec<usize>,
    causes: BTreeMap<String, Cause>,
}

#[derive(Default)]
struct Cause {
    /// The number of tests that each place inside lost by this cause.
    lost: Vec<usize>,
    items: BTreeSet<String>,
}

impl Report {
    /// Creates an empty report for these places. The first is outside.
    pub fn new(at: &[Place]) -> Self {
        Self {
            at: at.to_vec(),
            items: 0,
            left_out: Vec::new(),
            passed: vec![0; at.len()],
            causes: BTreeMap::new(),
        }
    }

    /// Records an item that was not run.
    pub fn leave_out(&mut self, item: &str) {
        self.left_out.push(item.to_owned());
    }

    /// Adds the results of an item in each place. Returns a line that summarizes them.
    pub fn add(&mut self, item: &str, found: &[Found]) -> String {
        let Some((outside, inside)) = found.split_first() else {
            return String::new();
        };
        self.items += 1;
        let passed = |how: &&String| *how == "passed";
        let counted = outside.endings.values().filter(passed).count();
        self.passed[0] += counted;
        let mut line = format!("{item}: {counted}");
        for (place, found) in inside.iter().enumerate() {
            let mut kept = 0;
            for (test, _) in outside.endings.iter().filter(|(_, how)| passed(how)) {
                let how = ending(found, item, test);
                if how == "passed" {
                    kept += 1;
                    continue;
                }
                let cause = self.causes.entry(in_general(&how)).or_default();
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

    /// Formats the tables.
    pub fn markdown(&self, title: &str, items: &str, what: &str) -> String {
        let (ran, left_out) = (self.items, self.left_out.len());
        let extent = match left_out {
            0 => format!("All {ran} {items}."),
            _ => format!(
                "{ran} of {} {items}. Not reached: {}.",
                ran + left_out,
                self.left_out.join(", ")
            ),
        };
        let mut text = format!("### {title}\n\n{extent}\n\n");
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

/// Returns the result of a test, or why it has none.
fn ending(found: &Found, item: &str, test: &str) -> String {
    let class = test.rsplit_once('.').map_or(test, |(class, _)| class);
    let module = class.rsplit_once('.').map_or(class, |(module, _)| module);
    let broken = found.broken.as_deref();
    match found.endings.get(test).map(String::as_str) {
        Some("began") => format!("it did not end: {}", broken.unwrap_or("no reason given")),
        Some(how) => how.to_owned(),
        None => {
            // Set-up that all tests of a class or a module share.
            let shared = [
                format!("setUpClass ({class})"),
                format!("setUpModule ({module})"),
                item.to_owned(),
            ];
            let mut shared = shared.iter().filter_map(|name| found.endings.get(name));
            let why = shared.next().map(String::as_str).or(broken);
            why.unwrap_or("it is not there").to_owned()
        }
    }
}

/// Removes what differs from test to test: numbers, paths and quoted names.
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

    fn found(endings: &[(&str, &str)], broken: Option<&str>) -> Found {
        let owned = |(test, how): &(&str, &str)| ((*test).to_owned(), (*how).to_owned());
        Found {
            endings: endings.iter().map(owned).collect(),
            broken: broken.map(str::to_owned),
        }
    }

    fn text(report: &Report) -> String {
        report.markdown("A title", "modules", "tests")
    }

    #[test]
    fn failure_outside_too_is_not_a_difference() {
        let mut report = Report::new(&[Place::Outside, Place::Run]);
        let outside = found(
            &[("a", "passed"), ("b", "passed"), ("c", "failed: x")],
            None,
        );
        let inside = found(
            &[("a", "passed"), ("b", "skipped: y"), ("c", "failed: z")],
            None,
        );
        assert_eq!(
            report.add("test_a", &[outside, inside]),
            "test_a: 2, by `run` 1"
        );
        report.leave_out("test_b");
        let text = text(&report);
        assert!(
            text.contains("1 of 2 modules. Not reached: test_b.\n"),
            "{text}"
        );
        assert!(text.contains("| 2 | 1 (50.0 %) |"), "{text}");
        assert!(text.contains("| `skipped: y` | 1 | test_a |"), "{text}");
        assert!(!text.contains("failed: z"), "{text}");
    }

    #[test]
    fn killed_item_loses_its_remaining_tests() {
        let passed = ["t.C.a", "t.C.b", "t.C.c"].map(|test| (test, "passed"));
        let inside = found(
            &[("t.C.a", "passed"), ("t.C.b", "began")],
            Some("it took too long"),
        );
        let mut report = Report::new(&[Place::Outside, Place::Run]);
        report.add("t", &[found(&passed, None), inside]);
        let text = text(&report);
        assert!(text.contains("| 3 | 1 (33.3 %) |"), "{text}");
        for cause in ["it did not end: it took too long", "it took too long"] {
            assert!(text.contains(&format!("| `{cause}` | 1 | t |")), "{text}");
        }
    }

    #[test]
    fn failed_class_setup_is_the_cause_for_its_tests() {
        let inside = found(&[("setUpClass (t.C)", "failed: OSError: no")], None);
        let mut report = Report::new(&[Place::Outside, Place::Run]);
        report.add("t", &[found(&[("t.C.a", "passed")], None), inside]);
        let text = text(&report);
        assert!(text.contains("| `failed: OSError: no` | 1 | t |"), "{text}");
    }
}
