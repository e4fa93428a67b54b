//! Runs the escape tests and puts their final table into the threat model.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use xshell::cmd;

use crate::document::{head, here_and_now, item, replace, row};
use crate::shell;
use crate::tally::for_each_line;

/// The start of the harness's table: `tests/escape/report.rs`.
const TABLE: &str = "class ";
/// The number of its columns: contained, escaped, unexplained, control failed, not promised, ignored.
const COLUMNS: usize = 6;

/// The parts of the harness's output that the document shows.
#[derive(Debug, Default, Eq, PartialEq)]
struct Found {
    /// The sandboxed attempts of each class by result, and the totals.
    classes: Vec<(String, [u64; COLUMNS])>,
    /// The reasons why attempts were skipped.
    reasons: BTreeMap<String, u64>,
    is_in_table: bool,
}

/// Runs all probes. If no attempt escaped, puts the results into docs/threat-model.md.
pub fn run() -> Result<()> {
    let sh = shell()?;
    let mut found = Found::default();
    let mut tests: Command = cmd!(sh, "cargo test --test escape")
        .env("SANDFORK_ESCAPE_AS_PROGRAMS", "1")
        .into();
    let status = for_each_line(&mut tests, |line| {
        println!("{line}");
        found.read(line);
    })?;
    ensure!(status.success(), "not everything was contained");
    let probes = count(&sh.current_dir().join("tests/escape/probes"))?;
    let text = found.markdown(&probes, &here_and_now()?);
    replace("threat-model.md", "cargo xtask verify probes", &text)
}

/// Returns the number of probes of each class.
fn count(directory: &Path) -> Result<BTreeMap<String, u64>> {
    let mut probes = BTreeMap::new();
    for class in fs::read_dir(directory)? {
        let class = class?;
        if class.file_type()?.is_dir() {
            let name = class.file_name().to_string_lossy().into_owned();
            let files = fs::read_dir(class.path())?.flatten();
            let is_probe =
                |file: &fs::DirEntry| file.path().extension().is_some_and(|end| end == "py");
            probes.insert(name, files.filter(is_probe).count().try_into()?);
        }
    }
    Ok(probes)
}

impl Found {
    fn read(&mut self, line: &str) {
        if line.starts_with(TABLE) {
            self.is_in_table = true;
        } else if self.is_in_table {
            self.classes.extend(parse(line));
        } else if let Some((_, reason)) = line.split_once(" ... ignored (")
            // The open controls of these attempts are skipped too; they do not count as attempts.
            && !line.starts_with("test [open]")
        {
            let reason = reason.trim_end_matches(')');
            // Removes the paths and users of this machine from the reason.
            let reason = reason.split(": uid ").next().unwrap_or(reason);
            *self.reasons.entry(reason.to_owned()).or_default() += 1;
        }
    }

    fn markdown(&self, probes: &BTreeMap<String, u64>, here_and_now: &str) -> String {
        let columns = [
            "class",
            "probes",
            "attempts contained",
            "got out",
            "not promised",
            "not applicable",
        ];
        let mut text = format!("Found {here_and_now}:\n\n{}", head(columns));
        for (class, ends) in &self.classes {
            let [
                contained,
                escaped,
                unexplained,
                failed,
                not_promised,
                ignored,
            ] = ends;
            let of_class = probes.get(class).copied();
            let count = of_class.unwrap_or_else(|| probes.values().sum());
            let out = escaped + unexplained + failed;
            let numbers =
                [count, *contained, out, *not_promised, *ignored].map(|it| it.to_string());
            text += &row(std::iter::once(class).chain(&numbers));
        }
        if !self.reasons.is_empty() {
            text += "\nNot applicable, by the host's own word:\n\n";
        }
        for (reason, count) in &self.reasons {
            text += &item(format_args!("{count}: {reason}"));
        }
        text
    }
}

/// Parses a row of the table: a class and a number for each column.
fn parse(line: &str) -> Option<(String, [u64; COLUMNS])> {
    let mut words = line.split_whitespace();
    let class = words.next()?.to_owned();
    let numbers: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    Some((class, numbers.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
test [open]     zygote::SF-1_a::root ... ignored (one processor)
test [strict]   zygote::SF-1_a::root ... ignored (one processor)
test [strict]   zygote::SF-2_b::user ... ignored (doctor: cgroup: uid 1000 may not)
test [strict]   zygote::SF-3_c::user ... ok
test result: ok. 1 passed; 0 failed; 3 ignored; 0 measured; 0 filtered out; finished in 1.00s

class                  contained         escaped     unexplained  control failed    not promised         ignored
zygote                        12               0               1               0               4               2
all                           12               0               1               0               4               2
";

    #[test]
    fn table_is_converted_to_markdown() {
        let mut found = Found::default();
        PRINTED.lines().for_each(|line| found.read(line));
        let probes = BTreeMap::from([("zygote".to_owned(), 3)]);
        assert_eq!(
            found.markdown(&probes, "on a day"),
            "Found on a day:\n\n\
             | class | probes | attempts contained | got out | not promised | not applicable |\n\
             |---|---|---|---|---|---|\n\
             | zygote | 3 | 12 | 1 | 4 | 2 |\n\
             | all | 3 | 12 | 1 | 4 | 2 |\n\n\
             Not applicable, by the host's own word:\n\n\
             - 1: doctor: cgroup\n\
             - 1: one processor\n"
        );
    }
}
