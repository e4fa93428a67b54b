//! Runs a test command, shows what it prints, and counts.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::Error;

/// How many tests ended how.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Tally {
    passed: u64,
    failed: u64,
    /// Reasons of those that were skipped.
    skipped: BTreeMap<String, u64>,
}

impl Tally {
    /// Runs `command` to its end.
    ///
    /// Standard error is passed on, standard output too, line by line.
    pub fn of(command: &mut Command) -> Result<Self, Error> {
        let program = command.get_program().to_owned();
        let started = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child =
            started.map_err(|error| format!("could not run {}: {error}", program.display()))?;
        let mut tally = Self::default();
        for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
            let line = line?;
            println!("{line}");
            tally.read(&line);
        }
        let status = child.wait()?;
        if !status.success() && tally.failed == 0 {
            // It did not compile, or it died with its tests.
            eprintln!("{} ended with {status}", program.display());
            tally.failed += 1;
        }
        Ok(tally)
    }

    /// Both together.
    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        for (reason, count) in other.skipped {
            *self.skipped.entry(reason).or_default() += count;
        }
    }

    /// Whether nothing failed.
    pub fn is_success(&self) -> bool {
        self.failed == 0
    }

    /// Takes in one line of a test harness (libtest and libtest-mimic print the same).
    fn read(&mut self, line: &str) {
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
        for (reason, count) in &self.skipped {
            writeln!(f, "{count} skipped: {reason}")?;
        }
        let skipped: u64 = self.skipped.values().sum();
        write!(
            f,
            "{} passed, {} failed, {skipped} skipped",
            self.passed, self.failed
        )
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
