//! Combines the results of the shares.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::Result;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::document::{head, row};

/// The results of each test, in the order in which they are run.
#[derive(Debug)]
pub struct Table<'t> {
    tests: &'t [String],
    rows: Vec<Row>,
}

/// The combined results of all shares of one test.
#[derive(Debug, Default, Deserialize, Serialize)]
struct Row {
    test: String,
    /// The date and the machine.
    on: String,
    calls: u64,
    points: u64,
    sound: u64,
    refused: u64,
    wrong: u64,
    late: u64,
    /// The longest time in seconds.
    gone: f64,
    next: f64,
}

impl<'t> Table<'t> {
    /// Reads the earlier results: one JSON line for each test that has some.
    pub fn read(kept: &str, tests: &'t [String]) -> Result<Self> {
        let rows: Result<Vec<Row>, _> = kept.lines().map(serde_json::from_str).collect();
        let mut table = Self { tests, rows: rows? };
        table.sort();
        Ok(table)
    }

    /// Formats the results as JSON lines, which `read` parses.
    pub fn to_json(&self) -> Result<String> {
        let mut lines = String::new();
        for row in &self.rows {
            lines += &serde_json::to_string(row)?;
            lines.push('\n');
        }
        Ok(lines)
    }

    /// Replaces the results of the tests that were run again on the day `on`. A test with an
    /// incomplete share has no results.
    pub fn renew(&mut self, found: &str, shares: usize, on: &str) -> Result<()> {
        let mut anew: BTreeMap<String, (usize, Row)> = BTreeMap::new();
        for line in found.lines() {
            let share: Value = serde_json::from_str(line)?;
            let test = share["test"].as_str().unwrap_or_default();
            let (ended, row) = anew.entry(test.to_owned()).or_default();
            *ended += 1;
            row.add(&share);
        }
        self.rows.retain(|row| !anew.contains_key(&row.test));
        let complete = anew.into_iter().filter(|(_, (ended, _))| *ended == shares);
        self.rows.extend(complete.map(|(test, (_, row))| Row {
            test,
            on: on.to_owned(),
            ..row
        }));
        self.sort();
        Ok(())
    }

    fn sort(&mut self) {
        let place = |row: &Row| self.tests.iter().position(|test| *test == row.test);
        self.rows.retain(|row| place(row).is_some());
        self.rows.sort_by_key(place);
    }

    /// Returns the tests without results.
    fn missing(&self) -> Vec<&str> {
        let is_missing = |test: &&String| self.rows.iter().all(|row| row.test != **test);
        let missing = self.tests.iter().filter(is_missing);
        missing.map(String::as_str).collect()
    }

    fn of_group(&self, group: &str) -> impl Iterator<Item = (&str, &Row)> {
        let prefix = format!("{group}::");
        let rows = self.rows.iter();
        rows.filter_map(move |row| Some((row.test.strip_prefix(&prefix)?, row)))
    }
}

impl Row {
    fn add(&mut self, share: &Value) {
        let count = |key: &str| share[key].as_u64().unwrap_or(0);
        let seconds = |key: &str| share[key].as_f64().unwrap_or(0.0);
        // Each share counts all calls, and the number of waits varies.
        self.calls = self.calls.max(count("calls"));
        self.points += count("points");
        self.sound += count("sound");
        self.refused += count("refused");
        let wrong = share["wrong"].as_array();
        self.wrong += wrong.map_or(0, |wrong| wrong.len() as u64);
        self.late += count("late");
        self.gone = self.gone.max(seconds("gone"));
        self.next = self.next.max(seconds("next"));
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on: BTreeSet<&str> = self.rows.iter().map(|row| row.on.as_str()).collect();
        let on: Vec<&str> = on.into_iter().collect();
        writeln!(f, "Found {}:\n", on.join("; "))?;
        for (group, title) in [
            ("fails", "Every call fails, or is late"),
            ("left_out", "Every step is left out"),
        ] {
            f.write_str(&set_up(title, self.of_group(group)))?;
        }
        f.write_str(&kills(self.of_group("killed")))?;
        match &self.missing()[..] {
            [] => Ok(()),
            missing => writeln!(f, "\nNot run: `{}`.", missing.join("`, `")),
        }
    }
}

fn set_up<'a>(title: &str, rows: impl Iterator<Item = (&'a str, &'a Row)>) -> String {
    let mut all = [0; 5];
    let mut lines = String::new();
    let line = |name: &str, numbers: [u64; 5]| {
        let numbers = numbers.map(|number| number.to_string());
        row([&[name.to_owned()], &numbers[..]].concat())
    };
    for (test, row) in rows {
        let (making, whose) = test.split_once("::").unwrap_or(("", test));
        let made = if making == "build" {
            "a sandbox"
        } else {
            "a worker"
        };
        let numbers = [row.calls, row.points, row.sound, row.refused, row.wrong];
        lines += &line(&format!("the {whose}, making {made}"), numbers);
        all.iter_mut()
            .zip(numbers)
            .for_each(|(sum, number)| *sum += number);
    }
    if lines.is_empty() {
        return lines;
    }
    let title = format!("{title}: of");
    let head = head([&title, "calls", "faults", "sound", "refused", "wrong"]);
    format!("{head}{lines}{}\n", line("all", all))
}

fn kills<'a>(rows: impl Iterator<Item = (&'a str, &'a Row)>) -> String {
    let mut points: BTreeMap<&str, u64> = BTreeMap::new();
    let mut lines = String::new();
    for (test, kill) in rows {
        let (setting, rest) = test.split_once("::").unwrap_or(("", test));
        let (victim, rest) = rest.split_once("_at_").unwrap_or((rest, ""));
        let (clock, command) = rest.split_once("_in_").unwrap_or((rest, ""));
        *points.entry(victim).or_default() += kill.points;
        lines += &row([
            format!("{victim}{}", setting_suffix(setting)),
            format!("the {clock}"),
            doing(command).to_owned(),
            kill.points.to_string(),
            format!("{:.0} ms", kill.gone * 1000.0),
            format!("{:.0} ms", kill.next * 1000.0),
            kill.late.to_string(),
            kill.wrong.to_string(),
        ]);
    }
    if lines.is_empty() {
        return lines;
    }
    let head = head([
        "killed",
        "at the calls of",
        "while",
        "points",
        "all gone after",
        "next run after",
        "later than 1 s",
        "wrong",
    ]);
    let points = points
        .iter()
        .map(|(victim, points)| format!("{victim} {points}"));
    let points: Vec<String> = points.collect();
    format!("{head}{lines}\nPoints in all: {}.\n", points.join(", "))
}

fn setting_suffix(setting: &str) -> &'static str {
    match setting {
        "user" => ", of an ordinary user",
        "no_namespaces" => ", at level `landlock`",
        _ => "",
    }
}

fn doing(command: &str) -> &str {
    match command {
        "build" => "a sandbox is made",
        "run" => "a run begins and ends",
        "session" => "a session lives",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: [&str; 3] = [
        "fails::build::zygote",
        "fails::run::worker",
        "killed::user::worker_at_attendant_in_run",
    ];

    #[test]
    fn shares_are_merged_and_other_results_kept() {
        let kept = r#"
{"test": "fails::build::zygote", "on": "long ago", "calls": 1, "points": 1, "sound": 1, "refused": 0, "wrong": 0, "late": 0, "gone": 0.0, "next": 0.0}
{"test": "killed::user::worker_at_attendant_in_run", "on": "before", "calls": 7, "points": 4, "sound": 0, "refused": 4, "wrong": 0, "late": 0, "gone": 0.0123, "next": 0.5}
{"test": "no such test", "on": "before", "calls": 1, "points": 1, "sound": 1, "refused": 0, "wrong": 0, "late": 0, "gone": 0.0, "next": 0.0}
"#;
        let found = r#"
{"test": "fails::build::zygote", "calls": 9, "points": 2, "sound": 1, "refused": 1, "wrong": [], "gone": 0.0, "next": 0.0}
{"test": "fails::run::worker", "calls": 9, "points": 2, "sound": 1, "refused": 1, "wrong": [], "gone": 0.0, "next": 0.0}
{"test": "fails::build::zygote", "calls": 8, "points": 3, "sound": 1, "refused": 1, "wrong": ["late"], "gone": 0.0, "next": 0.0}
"#;
        let tests = NAMES.map(str::to_owned);
        let mut table = Table::read(kept.trim(), &tests).expect("valid JSON");
        table.renew(found.trim(), 2, "now").expect("valid JSON");
        let kept = table.to_json().expect("the file is writable");
        let text = Table::read(&kept, &tests).expect("valid JSON").to_string();
        assert_eq!(text, table.to_string());
        for line in [
            "Found before; now:",
            "| the zygote, making a sandbox | 9 | 5 | 2 | 2 | 1 |",
            "| all | 9 | 5 | 2 | 2 | 1 |",
            "| worker, of an ordinary user | the attendant | a run begins and ends | 4 | 12 ms | 500 ms | 0 | 0 |",
            "Points in all: worker 4.",
            // One of its shares is missing.
            "Not run: `fails::run::worker`.",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }
}
