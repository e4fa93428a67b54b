//! Runs a test command, forwards its output, and counts the results.
//!
//! Rust's harnesses and pytest print different formats.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, ensure};

/// The maximum number of lines kept of a harness's failures: the first lines matter most, and the log has the rest.
const KEPT: usize = 200;

/// The number of tests by result.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    passed: u64,
    failed: u64,
    /// Why tests were skipped, with the number of tests.
    skipped: BTreeMap<String, u64>,
    /// The output of failed tests, to repeat it at the end of a long log.
    failures: Vec<String>,
    is_in_failures: bool,
}

/// Parses a line of a harness's output.
pub type Read = fn(&mut Tally, &str);

impl Tally {
    /// Runs a command to its end. Forwards stderr, and stdout line by line.
    pub fn of(command: impl Into<Command>, read: Read) -> Result<Self> {
        Self::of_lines(command.into(), read, |line| println!("{line}"))
    }

    /// Like `of`, but prints the output under its title at the end, because other commands run
    /// meanwhile.
    pub fn of_at_once(title: &str, command: impl Into<Command>, read: Read) -> Result<Self> {
        let mut shown = format!("\n{title}\n");
        let tally = Self::of_lines(command.into(), read, |line| {
            shown.push_str(line);
            shown.push('\n');
        });
        print!("{shown}");
        tally
    }

    /// Runs a command that counts as one test: it passes if the command succeeds.
    pub fn of_check(command: impl Into<Command>) -> Result<Self> {
        let mut tally = Self::of(command, |_, _| {})?;
        tally.passed = u64::from(tally.failed == 0);
        Ok(tally)
    }

    /// Counts one skipped test.
    pub fn skipped(reason: &str) -> Self {
        Self {
            skipped: BTreeMap::from([(reason.to_owned(), 1)]),
            ..Self::default()
        }
    }

    fn of_lines(mut command: Command, read: Read, mut show: impl FnMut(&str)) -> Result<Self> {
        let mut tally = Self::default();
        let status = for_each_line(&mut command, |line| {
            show(line);
            read(&mut tally, line);
        })?;
        if !status.success() && tally.failed == 0 {
            // The program did not compile, or crashed.
            let message = format!("{} ended with {status}", command.get_program().display());
            eprintln!("{message}");
            tally.failures.push(message);
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

    /// Prints the counts. Fails if a test failed.
    pub fn report(&self) -> Result<()> {
        println!("\n{self}");
        ensure!(self.is_success(), "not everything passed");
        Ok(())
    }

    /// Returns whether no test failed.
    pub fn is_success(&self) -> bool {
        self.failed == 0
    }

    /// Counts a failure, unless one is counted already.
    pub fn fail_if_successful(&mut self) {
        self.failed = self.failed.max(1);
    }

    /// Formats the summary line.
    pub fn counts(&self) -> String {
        let skipped: u64 = self.skipped.values().sum();
        format!(
            "{} passed, {} failed, {skipped} skipped",
            self.passed, self.failed
        )
    }

    fn skip(&mut self, reason: &str, count: u64) {
        *self.skipped.entry(reason.to_owned()).or_default() += count;
    }

    /// Keeps a line of the failures' output. `place` says whether the line is a title that begins or ends that output.
    fn keep(&mut self, line: &str, place: Option<bool>) {
        if let Some(is_inside) = place {
            self.is_in_failures = is_inside;
        } else if self.is_in_failures && !line.is_empty() && self.failures.len() < KEPT {
            self.failures.push(line.to_owned());
        }
    }

    /// Parses one line of a test harness (libtest and libtest-mimic print the same).
    pub fn read(&mut self, line: &str) {
        let counts = line.strip_prefix("test result: ");
        self.keep(
            line,
            counts
                .map(|_| false)
                .or((line == "failures:").then_some(true)),
        );
        if let Some(counts) = counts {
            for count in counts.split(['.', ';']) {
                match count.trim().split_once(' ') {
                    Some((number, "passed")) => self.passed += number.parse().unwrap_or(0),
                    Some((number, "failed")) => self.failed += number.parse().unwrap_or(1),
                    _ => {}
                }
            }
        } else if let Some(test) = line.strip_prefix("test ")
            && let Some((_, reason)) = test.rsplit_once(" ... ignored")
        {
            let reason = reason.trim_start_matches([',', ' ']);
            let inner = reason.strip_prefix('(').and_then(|it| it.strip_suffix(')'));
            match inner.unwrap_or(reason) {
                "" => self.skip("no reason given", 1),
                reason => self.skip(reason, 1),
            }
        }
    }

    /// Parses one line of `pytest -q -rs`: `SKIPPED [2] tests/test_a.py:7: reason`, or the last one, `1
    /// failed, 12 passed, 2 skipped, 1 error in 3.21s` or `in 65.29s (0:01:05)`. Titles are enclosed in
    /// equals signs.
    pub fn read_pytest(&mut self, line: &str) {
        let title = line
            .strip_prefix("==")
            .map(|rest| rest.trim_matches(['=', ' ']));
        self.keep(
            line,
            title.map(|title| matches!(title, "FAILURES" | "ERRORS")),
        );
        if let Some(skipped) = line.strip_prefix("SKIPPED [")
            && let Some((count, rest)) = skipped.split_once("] ")
        {
            let reason = rest.split_once(": ").map_or(rest, |(_, reason)| reason);
            self.skip(reason, count.parse().unwrap_or(1));
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

/// Runs a command without input, and calls `take` with each line of its output as it arrives.
pub fn for_each_line(command: &mut Command, mut take: impl FnMut(&str)) -> Result<ExitStatus> {
    let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child =
        started.with_context(|| format!("could not run {}", command.get_program().display()))?;
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        take(&line?);
    }
    Ok(child.wait()?)
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (reason, count) in &self.skipped {
            writeln!(f, "{count} skipped: {reason}")?;
        }
        // The failures come last, because viewers of a long log may show only its end.
        for line in &self.failures {
            writeln!(f, "{line}")?;
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
    fn failures_are_repeated_at_the_end() {
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
    fn pytest_output_is_parsed() {
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
