//! Runs the tests against every mutant of the jail, and reports which tests detect it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, ExitCode, Stdio};

use serde_json::Value;

use crate::test::built;
use crate::{Error, document, workspace};

const COMMAND: &str = "cargo xtask verify mutants";

/// The result of a mutant, as `tests/mutants` reports it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Line {
    layer: String,
    /// The name without the layer.
    name: String,
    by: String,
    what: String,
}

/// The column in which a mutant is counted.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Column {
    SetUp,
    Look,
    Guest,
    Doubled,
    Equivalent,
    Wrong,
}

const COLUMNS: [Column; 6] = [
    Column::SetUp,
    Column::Look,
    Column::Guest,
    Column::Doubled,
    Column::Equivalent,
    Column::Wrong,
];

/// Tries the mutants. If `words` are given, it takes those with one of these in their name. The
/// results of all of them go into the threat model.
pub fn run(words: &[String]) -> Result<ExitCode, Error> {
    if !nix::unistd::geteuid().is_root() {
        return Err("layers can be taken from a jail by root only: run it as root".into());
    }
    let lines = try_all(words)?;
    let table = table(&lines);
    println!("\n{table}");
    if words.is_empty() {
        let text = format!(
            "{}\n\n{table}\n{}",
            heading(&lines)?,
            explained(&lines).trim_end()
        );
        document::replace(&workspace().join("docs/threat-model.md"), COMMAND, &text)?;
    }
    let wrong = lines.iter().any(|line| line.column() == Column::Wrong);
    Ok(ExitCode::from(u8::from(wrong)))
}

fn try_all(words: &[String]) -> Result<Vec<Line>, Error> {
    let is_it = |message: &Value| {
        message["target"]["name"] == "mutants" && message["executable"].is_string()
    };
    let program = built(&workspace(), &["build", "--test", "mutants"], is_it)?;
    let mut command = Command::new(program);
    command.args(words).env("SANDFORK_MUTANTS", "full");
    let mut child = command
        .current_dir(workspace())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("it has no output")?;
    let mut lines = Vec::new();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        lines.extend(Line::parse(&line));
    }
    let status = child.wait()?;
    let is_whole = status.success() || lines.iter().any(|line| line.column() == Column::Wrong);
    if lines.is_empty() || !is_whole {
        return Err(format!("the mutants were not all tried: {status}").into());
    }
    Ok(lines)
}

impl Line {
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.splitn(4, '\t').map(str::to_owned);
        let (layer, name) = (fields.next()?, fields.next()?);
        let name = name.strip_prefix(&format!("{layer}: "))?.to_owned();
        let (by, what) = (fields.next()?, fields.next()?);
        Some(Self {
            layer,
            name,
            by,
            what,
        })
    }

    fn column(&self) -> Column {
        match self.by.split(' ').next() {
            Some("set-up") => Column::SetUp,
            Some("look") => Column::Look,
            Some("guest") => Column::Guest,
            Some("doubled") => Column::Doubled,
            Some("equivalent") => Column::Equivalent,
            _ => Column::Wrong,
        }
    }
}

fn heading(lines: &[Line]) -> Result<String, Error> {
    Ok(format!(
        "{} mutants, as root at level `full`, {}:",
        lines.len(),
        document::here_and_now()?
    ))
}

fn table(lines: &[Line]) -> String {
    let mut layers: Vec<&str> = Vec::new();
    for line in lines {
        if !layers.contains(&line.layer.as_str()) {
            layers.push(&line.layer);
        }
    }
    let mut text = String::from(
        "| layer | mutants | set-up failed | a look saw it | a guest saw it | seen only without another layer | no difference | missed |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let row = |name: &str, of: &dyn Fn(&&Line) -> bool| {
        let of: Vec<&Line> = lines.iter().filter(of).collect();
        let count = |column| of.iter().filter(|line| line.column() == column).count();
        let counts = COLUMNS.map(|column| count(column).to_string()).join(" | ");
        format!("| {name} | {} | {counts} |\n", of.len())
    };
    for layer in layers {
        text += &row(layer, &|line| line.layer == layer);
    }
    text += &row("all", &|_| true);
    text
}

/// The mutants that need an explanation: which layer still stops them, or why they have no visible
/// effect.
fn explained(lines: &[Line]) -> String {
    let mut doubled: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut equivalent: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for line in lines {
        match line.column() {
            Column::Doubled => {
                let by = line.by.trim_start_matches("doubled by ");
                let names = doubled.entry((&line.layer, by)).or_default();
                names.push(&line.name);
            }
            Column::Equivalent => {
                let name = format!("`{}: {}`", line.layer, line.name);
                equivalent.entry(&line.what).or_default().insert(name);
            }
            _ => {}
        }
    }
    let mut text = String::from("Seen only without another layer, which stops the same:\n\n");
    for ((layer, by), names) in doubled {
        // Writing to a string does not fail.
        _ = writeln!(text, "- {layer}, by {by}: {}", names.join("; "));
    }
    text += "\nNo difference, with the reason:\n\n";
    for (reason, names) in equivalent {
        let names: Vec<String> = names.into_iter().collect();
        _ = writeln!(text, "- {}: {reason}", names.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOLD: &str = "\
landlock\tlandlock: refer not handled\tguest files\t/work: link EXDEV
landlock\tlandlock: truncate not handled\tdoubled by mounts\t<read>/file: truncate done
cgroup\tcgroup: no swap\tequivalent\tthis host has no swap
cgroup\tcgroup: pids\tSURVIVED\t";

    #[test]
    fn each_mutant_is_counted_once() {
        let lines: Vec<Line> = TOLD.lines().filter_map(Line::parse).collect();
        let table = table(&lines);
        assert!(
            table.contains("| landlock | 2 | 0 | 0 | 1 | 1 | 0 | 0 |\n"),
            "{table}"
        );
        assert!(
            table.contains("| cgroup | 2 | 0 | 0 | 0 | 0 | 1 | 1 |\n"),
            "{table}"
        );
        assert!(
            table.ends_with("| all | 4 | 0 | 0 | 1 | 1 | 1 | 1 |\n"),
            "{table}"
        );
        let explained = explained(&lines);
        assert!(explained.contains("- landlock, by mounts: truncate not handled\n"));
        assert!(explained.contains("- `cgroup: no swap`: this host has no swap\n"));
    }
}
