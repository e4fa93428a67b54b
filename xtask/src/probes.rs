//! Runs the escape tests and puts their final table into the threat model.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::{Error, document, workspace};

/// The start of the harness's table: `tests/escape/report.rs`.
const TABLE: &str = "class ";
const COLUMNS: [&str; 6] = [
    "contained",
    "escaped",
    "unexplained",
    "control failed",
    "not promised",
    "ignored",
];

/// The parts of the harness's output that a document shows.
#[derive(Debug, Default, Eq, PartialEq)]
struct Found {
    /// The sandboxed attempts of each class by result, and the totals.
    classes: Vec<(String, [u64; COLUMNS.len()])>,
    /// The reasons why attempts were not made.
    reasons: BTreeMap<String, u64>,
}

/// Runs all of them. If no attempt escaped, puts the results into docs/threat-model.md.
pub fn run() -> Result<ExitCode, Error> {
    let workspace = workspace();
    let mut tests = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tests
        .args(["test", "--test", "escape"])
        .current_dir(&workspace);
    let mut child = tests.stdout(Stdio::piped()).spawn()?;
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().ok_or("no output")?).lines() {
        let line = line?;
        println!("{line}");
        lines.push(line);
    }
    if !child.wait()?.success() {
        return Ok(ExitCode::FAILURE);
    }
    let found = Found::read(lines.iter().map(String::as_str));
    let probes = count(&workspace.join("tests/escape/probes"))?;
    let text = found.markdown(&probes, &document::here_and_now()?);
    let place = workspace.join("docs/threat-model.md");
    document::replace(&place, "cargo xtask verify probes", &text)?;
    Ok(ExitCode::SUCCESS)
}

/// The number of probes of each class.
fn count(directory: &Path) -> Result<BTreeMap<String, u64>, Error> {
    let mut probes = BTreeMap::new();
    for class in fs::read_dir(directory)? {
        let class = class?;
        if class.file_type()?.is_dir() {
            let name = class.file_name().to_string_lossy().into_owned();
            let files = fs::read_dir(class.path())?.collect::<Result<Vec<_>, _>>()?;
            let is_probe =
                |file: &&fs::DirEntry| file.path().extension().is_some_and(|end| end == "py");
            probes.insert(name, files.iter().filter(is_probe).count().try_into()?);
        }
    }
    Ok(probes)
}

impl Found {
    fn read<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let mut found = Self::default();
        let mut in_table = false;
        for line in lines {
            if line.starts_with(TABLE) {
                in_table = true;
            } else if in_table {
                found.classes.extend(row(line));
            } else if let Some((_, reason)) = line.split_once(" ... ignored (")
                // The controls of these attempts are not made either; they do not count as
                // attempts.
                && !line.starts_with("test [open]")
            {
                let reason = reason.trim_end_matches(')');
                // Removes the paths and users of this machine from the refusal for the document.
                let reason = reason.split(": uid ").next().unwrap_or(reason);
                *found.reasons.entry(reason.to_owned()).or_default() += 1;
            }
        }
        found
    }

    fn markdown(&self, probes: &BTreeMap<String, u64>, here_and_now: &str) -> String {
        let mut text = format!(
            "Found {here_and_now}:\n\n\
             | class | probes | attempts contained | got out | not promised | not applicable |\n\
             |---|--:|--:|--:|--:|--:|\n"
        );
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
            text += &row_of(&[count, *contained, out, *not_promised, *ignored], class);
        }
        if !self.reasons.is_empty() {
            text += "\nNot applicable, by the host's own word:\n\n";
        }
        for (reason, count) in &self.reasons {
            text += "- ";
            text += &count.to_string();
            text += ": ";
            text += reason;
            text += "\n";
        }
        text
    }
}

fn row_of(numbers: &[u64], class: &str) -> String {
    let cells: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("| {class} | {} |\n", cells.join(" | "))
}

/// Parses one line of the table: a class, and a number for each column.
fn row(line: &str) -> Option<(String, [u64; COLUMNS.len()])> {
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
    fn the_table_becomes_one_of_the_document() {
        let found = Found::read(PRINTED.lines());
        let probes = BTreeMap::from([("zygote".to_owned(), 3)]);
        assert_eq!(
            found.markdown(&probes, "on a day"),
            "Found on a day:\n\n\
             | class | probes | attempts contained | got out | not promised | not applicable |\n\
             |---|--:|--:|--:|--:|--:|\n\
             | zygote | 3 | 12 | 1 | 4 | 2 |\n\
             | all | 3 | 12 | 1 | 4 | 2 |\n\n\
             Not applicable, by the host's own word:\n\n\
             - 1: doctor: cgroup\n\
             - 1: one processor\n"
        );
    }
}
