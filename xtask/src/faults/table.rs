//! Combines the results of the shares.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::Error;

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
    /// The longest time, seconds.
    gone: f64,
    next: f64,
}

impl<'t> Table<'t> {
    /// Reads the earlier results, a line of JSON for each test that has some.
    pub fn read(kept: &str, tests: &'t [String]) -> Result<Self, Error> {
        let rows: Result<Vec<Row>, _> = kept.lines().map(serde_json::from_str).collect();
        let mut table = Self { tests, rows: rows? };
        table.sort();
        Ok(table)
    }

    /// The results as JSON, in the format that `read` takes.
    pub fn to_json(&self) -> Result<String, Error> {
        let mut lines = String::new();
        for row in &self.rows {
            lines += &serde_json::to_string(row)?;
            lines.push('\n');
        }
        Ok(lines)
    }

    /// Replaces the results of the tests that were run again on the day `on`. A test with an
    /// incomplete share has no results.
    pub fn renew(&mut self, found: &str, shares: usize, on: &str) -> Result<(), Error> {
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

    /// The tests without results.
    fn missing(&self) -> Vec<&str> {
        let is_missing = |test: &&String| self.rows.iter().all(|row| row.test != **test);
        let missing = self.tests.iter().filter(is_missing);
        missing.map(String::as_str).collect()
    }

    fn of_group(&self, group: &str) -> Vec<(&str, &Row)> {
        let prefix = format!("{group}::");
        let rows = self.rows.iter();
        rows.filter_map(|row| Some((row.test.strip_prefix(&prefix)?, row)))
            .collect()
    }
}

impl Row {
    fn add(&mut self, share: &Value) {
        let count = |key: &str| share[key].as_u64().unwrap_or(0);
        let seconds = |key: &str| share[key].as_f64().unwrap_or(0.0);
        // Each share counts all calls, and the number of waits differs.
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
            set_up(f, title, &self.of_group(group))?;
        }
        kills(f, &self.of_group("killed"))?;
        match &self.missing()[..] {
            [] => Ok(()),
            missing => writeln!(f, "\nNot run: `{}`.", missing.join("`, `")),
        }
    }
}

fn set_up(f: &mut fmt::Formatter<'_>, title: &str, rows: &[(&str, &Row)]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "| {title}: of | calls | faults | sound | refused | wrong |"
    )?;
    writeln!(f, "|---|---|---|---|---|---|")?;
    let mut all = Row::default();
    for (test, row) in rows {
        let (making, whose) = test.split_once("::").unwrap_or(("", test));
        let making = if making == "build" {
            "a sandbox"
        } else {
            "a worker"
        };
        line(f, &format!("the {whose}, making {making}"), row)?;
        all.calls += row.calls;
        all.points += row.points;
        all.sound += row.sound;
        all.refused += row.refused;
        all.wrong += row.wrong;
    }
    line(f, "all", &all)?;
    writeln!(f)
}

fn line(f: &mut fmt::Formatter<'_>, of: &str, row: &Row) -> fmt::Result {
    let Row {
        calls,
        points,
        sound,
        refused,
        wrong,
        ..
    } = row;
    writeln!(
        f,
        "| {of} | {calls} | {points} | {sound} | {refused} | {wrong} |"
    )
}

fn kills(f: &mut fmt::Formatter<'_>, rows: &[(&str, &Row)]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        f,
        "| killed | at the calls of | while | points | all gone after | next run after | later than 1 s | wrong |"
    )?;
    writeln!(f, "|---|---|---|---|---|---|---|---|")?;
    let mut points: BTreeMap<&str, u64> = BTreeMap::new();
    for (test, row) in rows {
        let (setting, rest) = test.split_once("::").unwrap_or(("", test));
        let (victim, rest) = rest.split_once("_at_").unwrap_or((rest, ""));
        let (clock, command) = rest.split_once("_in_").unwrap_or((rest, ""));
        *points.entry(victim).or_default() += row.points;
        writeln!(
            f,
            "| {victim}{} | the {clock} | {} | {} | {:.0} ms | {:.0} ms | {} | {} |",
            where_(setting),
            doing(command),
            row.points,
            row.gone * 1000.0,
            row.next * 1000.0,
            row.late,
            row.wrong
        )?;
    }
    let points: Vec<String> = points
        .iter()
        .map(|(victim, points)| format!("{victim} {points}"))
        .collect();
    writeln!(f, "\nPoints in all: {}.", points.join(", "))
}

fn where_(setting: &str) -> &'static str {
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
    fn shares_are_put_together_and_others_stay() {
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
        let mut table = Table::read(kept.trim(), &tests).expect("it is JSON");
        table.renew(found.trim(), 2, "now").expect("it is JSON");
        let kept = table.to_json().expect("it can be written");
        let text = Table::read(&kept, &tests).expect("it is JSON").to_string();
        assert_eq!(text, table.to_string());
        for line in [
            "Found before; now:",
            "| the zygote, making a sandbox | 9 | 5 | 2 | 2 | 1 |",
            "| all | 9 | 5 | 2 | 2 | 1 |",
            "| worker, of an ordinary user | the attendant | a run begins and ends | 4 | 12 ms | 500 ms | 0 | 0 |",
            "Points in all: worker 4.",
            // One of its shares is incomplete.
            "Not run: `fails::run::worker`.",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }
}
