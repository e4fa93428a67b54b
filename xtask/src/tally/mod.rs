//! Runs a test command, forwards its output, and counts the results.
//!
//! Rust's harnesses and pytest print different formats.

mod failures;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use self::failures::Failures;
use crate::Error;

/// The number of tests by result.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    passed: u64,
    failed: u64,
    /// Why tests were skipped, with the number of tests.
    skipped: BTreeMap<String, u64>,
    failures: Failures,
}

impl Tally {
    /// Runs `command`, which prints in libtest's format, to its end.
    ///
    /// Forwards standard error, and standard output line by line.
    pub fn of(command: &mut Command) -> Result<Self, Error> {
        Self::of_lines(command, Self::read, |line| println!("{line}"))
    }

    /// Like `of`, for a command that prints in the format of `pytest -q -rs`.
    pub fn of_pytest(command: &mut Command) -> Result<Self, Error> {
        Self::of_lines(command, Self::read_pytest, |line| println!("{line}"))
    }

    /// Like `of_pytest`, but prints the output under its title at the end, because other commands
    /// run meanwhile.
    pub fn of_pytest_at_once(title: &str, command: &mut Command) -> Result<Self, Error> {
        let mut shown = format!("\n{title}\n");
        let tally = Self::of_lines(command, Self::read_pytest, |line| {
            shown.push_str(line);
            shown.push('\n');
        });
        print!("{shown}");
        tally
    }

    /// Runs a command that counts as one test: it passes if it succeeds.
    pub fn of_check(command: &mut Command) -> Result<Self, Error> {
        let mut tally = Self::of_lines(command, |_, _| {}, |line| println!("{line}"))?;
        tally.passed = u64::from(tally.is_success());
        Ok(tally)
    }

    /// Counts one test that was not run.
    pub fn skipped(reason: &str) -> Self {
        Self {
            skipped: BTreeMap::from([(reason.to_owned(), 1)]),
            ..Self::default()
        }
    }

    fn of_lines(
        command: &mut Command,
        read: impl Fn(&mut Self, &str),
        mut show: impl FnMut(&str),
    ) -> Result<Self, Error> {
        let program = command.get_program().to_owned();
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child =
            started.map_err(|error| format!("could not run {}: {error}", program.display()))?;
        let mut tally = Self::default();
        for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
            let line = line?;
            show(&line);
            read(&mut tally, &line);
        }
        let status = child.wait()?;
        if !status.success() && tally.failed == 0 {
            // The program did not compile, or crashed.
            let said = format!("{} ended with {status}", program.display());
            eprintln!("{said}");
            tally.failures.push(said);
            tally.failed += 1;
        }
        Ok(tally)
    }

    /// Adds another tally.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        for (reason, count) in other.skipped {
            *self.skipped.entry(reason).or_default() += count;
        }
        self.failures.extend(other.failures);
    }

    /// Whether no test failed.
    pub fn is_success(&self) -> bool {
        self.failed == 0
    }

    /// Counts a failure, unless one is counted already.
    pub fn fail_if_successful(&mut self) {
        self.failed = self.failed.max(1);
    }

    /// The summary line.
    pub fn counts(&self) -> String {
        let skipped: u64 = self.skipped.values().sum();
        format!(
            "{} passed, {} failed, {skipped} skipped",
            self.passed, self.failed
        )
    }

    /// Parses one line of a test harness (libtest and libtest-mimic print the same).
    pub fn read(&mut self, line: &str) {
        self.failures.read(line);
        if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count_before(counts, "passed");
            self.failed += count_before(counts, "failed");
        } else if let Some((_, end)) = line
            .strip_prefix("test ")
            .and_then(|it| it.rsplit_once(" ... "))
            && let Some(reason) = end.strip_prefix("ignored")
        {
            let reason = reason.trim_start_matches([',', ' ']);
            let reason = reason
                .strip_prefix('(')
                .and_then(|it| it.strip_suffix(')'))
                .unwrap_or(reason);
            let reason = if reason.is_empty() {
                "no reason given"
            } else {
                reason
            };
            *self.skipped.entry(reason.to_owned()).or_default() += 1;
        }
    }

    /// Parses one line of pytest: `SKIPPED [2] tests/test_a.py:7: reason`, or the last one, `1
    /// failed, 12 passed, 2 skipped, 1 error in 3.21s` or `in 65.29s (0:01:05)`.
    pub fn read_pytest(&mut self, line: &str) {
        self.failures.read_pytest(line);
        if let Some((count, rest)) = line
            .strip_prefix("SKIPPED [")
            .and_then(|it| it.split_once("] "))
        {
            let reason = rest.split_once(": ").map_or(rest, |(_, reason)| reason);
            *self.skipped.entry(reason.to_owned()).or_default() += count.parse().unwrap_or(1);
        } else if line.starts_with(|first: char| first.is_ascii_digit())
            && let Some((counts, took)) = line.rsplit_once(" in ")
            // Above a minute, pytest also prints the time as hours, minutes and seconds.
            && took.split(' ').next().is_some_and(|seconds| seconds.ends_with('s'))
        {
            for count in counts.split(", ") {
                match count.split_once(' ') {
                    Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                    Some((number, "failed" | "error" | "errors")) => {
                        self.failed += number.parse().unwrap_or(1);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// The number of `... 12 passed; ...`.
fn count_before(counts: &str, word: &str) -> u64 {
    let before = counts
        .split([';', '.'])
        .find_map(|part| part.trim().strip_suffix(word));
    before
        .and_then(|number| number.trim().parse().ok())
        .unwrap_or(0)
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.failures.lines() {
            writeln!(f, "{line}")?;
        }
        for (reason, count) in &self.skipped {
            writeln!(f, "{count} skipped: {reason}")?;
        }
        f.write_str(&self.counts())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        for line in lines {
            tally.read(line);
        }
        tally
    }

    #[test]
    fn results_of_several_harnesses_add_up() {
        let mut sum = tally(&[
            "test policy::units ... ok",
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.0s",
        ]);
        sum.add(tally(&[
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
        ]));
        assert_eq!(sum.to_string(), "7 passed, 1 failed, 0 skipped");
        assert!(!sum.is_success());
    }

    #[test]
    fn what_failed_is_told_again_at_the_end() {
        let mut sum = tally(&[
            "test a::b ... FAILED",
            "",
            "failures:",
            "",
            "---- a::b ----",
            "is survived by 7",
            "",
            "failures:",
            "    a::b",
            "",
            "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out",
            "test c ... ok",
        ]);
        let mut python = Tally::default();
        for line in [
            "==== FAILURES ====",
            "E   assert 1 == 2",
            "==== short test summary info ====",
            "FAILED tests/test_a.py::test_b - assert 1 == 2",
            "1 failed, 12 passed in 3.21s",
        ] {
            python.read_pytest(line);
        }
        sum.add(python);
        let expected = "---- a::b ----\nis survived by 7\n    a::b\nE   assert 1 == 2\n\
                        14 passed, 2 failed, 0 skipped";
        assert_eq!(sum.to_string(), expected);
    }

    #[test]
    fn pytest_counts_in_its_own_words() {
        let mut tally = Tally::default();
        for line in [
            "...s.F                                                      [100%]",
            "SKIPPED [2] tests/test_a.py:7: no cgroup: not here",
            "FAILED tests/test_a.py::test_b - assert 1 in 2",
            "1 failed, 12 passed, 2 skipped, 1 error in 3.21s",
            "30 passed, 1 deselected in 65.29s (0:01:05)",
            "4 passed the word in hand",
        ] {
            tally.read_pytest(line);
        }
        let expected = "2 skipped: no cgroup: not here\n42 passed, 2 failed, 2 skipped";
        assert_eq!(tally.to_string(), expected);
    }

    #[test]
    fn skips_are_counted_by_reason() {
        let tally = tally(&[
            "test limits::oom     ... ignored (no cgroup)",
            "test [standard] b ... ignored (no cgroup)",
            "test slow ... ignored, takes a day",
            "test silent ... ignored",
            "test result: ok. 0 passed; 0 failed; 4 ignored; 0 measured; 0 filtered out",
        ]);
        let expected = "2 skipped: no cgroup\n1 skipped: no reason given\n1 skipped: takes a day\n\
                        0 passed, 0 failed, 4 skipped";
        assert_eq!(tally.to_string(), expected);
    }
}
