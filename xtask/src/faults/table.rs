//! What the shares found, put together.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::Error;

/// What came of each test, in the order in which they are run.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<(String, Row)>,
}

/// All shares of one test together.
#[derive(Debug, Default)]
struct Row {
    calls: u64,
    points: u64,
    sound: u64,
    refused: u64,
    wrong: u64,
    late: u64,
    /// Seconds, at most.
    gone: f64,
    next: f64,
}

impl Table {
    /// Reads a line of JSON for each share of each of these tests.
    pub fn read(found: &str, tests: &[String]) -> Result<Self, Error> {
        let mut table = Self::default();
        for line in found.lines() {
            table.add(&serde_json::from_str(line)?);
        }
        let place = |(name, _): &(String, Row)| tests.iter().position(|test| test == name);
        table.rows.retain(|row| place(row).is_some());
        table.rows.sort_by_key(place);
        Ok(table)
    }

    /// Those of the tests by which nothing was found.
    pub fn missing<'t>(&self, tests: &'t [String]) -> Vec<&'t str> {
        let is_missing = |test: &&String| self.rows.iter().all(|(name, _)| name != *test);
        tests
            .iter()
            .filter(is_missing)
            .map(String::as_str)
            .collect()
    }

    fn add(&mut self, found: &Value) {
        let test = found["test"].as_str().unwrap_or_default();
        let place = self.rows.iter().position(|(known, _)| known == test);
        let place = place.unwrap_or_else(|| {
            self.rows.push((test.to_owned(), Row::default()));
            self.rows.len() - 1
        });
        let row = &mut self.rows[place].1;
        let count = |key: &str| found[key].as_u64().unwrap_or(0);
        let seconds = |key: &str| found[key].as_f64().unwrap_or(0.0);
        // Each share counts them all, and how often somebody waits differs.
        row.calls = row.calls.max(count("calls"));
        row.points += count("points");
        row.sound += count("sound");
        row.refused += count("refused");
        row.wrong += found["wrong"]
            .as_array()
            .map_or(0, |wrong| wrong.len() as u64);
        row.late += count("late");
        row.gone = row.gone.max(seconds("gone"));
        row.next = row.next.max(seconds("next"));
    }

    fn of_group(&self, group: &str) -> Vec<(&str, &Row)> {
        let prefix = format!("{group}::");
        let rows = self.rows.iter();
        rows.filter_map(|(test, row)| Some((test.strip_prefix(&prefix)?, row)))
            .collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (group, title) in [
            ("fails", "Every call fails, or is late"),
            ("left_out", "Every step is left out"),
        ] {
            set_up(f, title, &self.of_group(group))?;
        }
        kills(f, &self.of_group("killed"))
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

    #[test]
    fn shares_are_put_together() {
        let found = r#"
{"test": "fails::build::zygote", "calls": 9, "points": 2, "sound": 1, "refused": 1, "wrong": [], "gone": 0.0, "next": 0.0}
{"test": "fails::build::zygote", "calls": 8, "points": 3, "sound": 1, "refused": 1, "wrong": ["late"], "gone": 0.0, "next": 0.0}
{"test": "killed::user::worker_at_attendant_in_run", "calls": 7, "points": 4, "sound": 0, "refused": 4, "wrong": [], "gone": 0.0123, "next": 0.5}
"#;
        let tests = [
            "fails::build::zygote",
            "killed::user::worker_at_attendant_in_run",
        ];
        let tests = tests.map(str::to_owned);
        let table = Table::read(found.trim(), &tests).expect("it is JSON");
        assert_eq!(table.missing(&tests), Vec::<&str>::new());
        let text = table.to_string();
        for line in [
            "| the zygote, making a sandbox | 9 | 5 | 2 | 2 | 1 |",
            "| all | 9 | 5 | 2 | 2 | 1 |",
            "| worker, of an ordinary user | the attendant | a run begins and ends | 4 | 12 ms | 500 ms | 0 | 0 |",
            "Points in all: worker 4.",
        ] {
            assert!(text.lines().any(|found| found == line), "{text}");
        }
    }
}
