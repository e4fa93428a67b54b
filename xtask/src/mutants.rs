//! Runs the tests against every mutant of the jail, and reports which tests detect it.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Result, ensure};
use xshell::cmd;

use crate::document::{head, here_and_now, item, replace, row};
use crate::shell;
use crate::tally::for_each_line;
use crate::test::test_program;

/// The result of a mutant, as `tests/mutants` reports it.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Line {
    layer: String,
    /// The name without the layer.
    name: String,
    by: String,
    what: String,
}

/// The columns in which mutants are counted, by the first word of their detector.
const COLUMNS: [(&str, &str); 6] = [
    ("set-up", "set-up failed"),
    ("look", "a look saw it"),
    ("guest", "a guest saw it"),
    (DOUBLED, "seen only without another layer"),
    (EQUIVALENT, "no difference"),
    (MISSED, "missed"),
];
const DOUBLED: &str = "doubled";
const EQUIVALENT: &str = "equivalent";
/// Any other detector.
const MISSED: &str = "";

/// Tries the mutants. If `words` is not empty, it selects those with one of the words in their name. The
/// results of a complete run go into the threat model.
pub fn run(words: &[String]) -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "layers can be taken from a jail by root only: run it as root"
    );
    let lines = try_all(words)?;
    let table = table(&lines);
    println!("\n{table}");
    if words.is_empty() {
        let (count, here, why) = (lines.len(), here_and_now()?, explained(&lines));
        let text = format!("{count} mutants, as root at level `full`, {here}:\n\n{table}\n{why}");
        replace("threat-model.md", "cargo xtask verify mutants", &text)?;
    }
    ensure!(
        lines.iter().all(|line| line.column() != MISSED),
        "mutants were missed"
    );
    Ok(())
}

fn try_all(words: &[String]) -> Result<Vec<Line>> {
    let sh = shell()?;
    let program = test_program("mutants", "dev")?;
    let mut lines = Vec::new();
    let mut mutants: Command = cmd!(sh, "{program} {words...}")
        .env("SANDFORK_MUTANTS", "full")
        .into();
    let status = for_each_line(&mut mutants, |line| {
        println!("{line}");
        lines.extend(Line::parse(line));
    })?;
    let is_whole = status.success() || lines.iter().any(|line| line.column() == MISSED);
    ensure!(
        !lines.is_empty() && is_whole,
        "the mutants were not all tried: {status}"
    );
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

    fn column(&self) -> &'static str {
        let word = self.by.split(' ').next();
        let known = COLUMNS.iter().find(|(column, _)| word == Some(column));
        known.map_or(MISSED, |(column, _)| column)
    }
}

fn table(lines: &[Line]) -> String {
    let mut layers: Vec<&str> = lines.iter().map(|line| line.layer.as_str()).collect();
    let mut seen = BTreeSet::new();
    layers.retain(|layer| seen.insert(*layer));
    let line = |name: &str, of: &dyn Fn(&&Line) -> bool| {
        let of: Vec<&Line> = lines.iter().filter(of).collect();
        let count = |column| of.iter().filter(|line| line.column() == column).count();
        let counts = COLUMNS.map(|(column, _)| count(column).to_string());
        row([&[name.to_owned(), of.len().to_string()], &counts[..]].concat())
    };
    let titles = COLUMNS.map(|(_, title)| title);
    let mut text = head([&["layer", "mutants"], &titles[..]].concat());
    for layer in layers {
        text += &line(layer, &|line| line.layer == layer);
    }
    text + &line("all", &|_| true)
}

/// Lists the mutants that need an explanation: which layer still stops them, or why they have no visible
/// effect.
fn explained(lines: &[Line]) -> String {
    let mut doubled: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    let mut equivalent: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for line in lines {
        match line.column() {
            DOUBLED => {
                let by = line.by.trim_start_matches("doubled by ");
                doubled
                    .entry((&line.layer, by))
                    .or_default()
                    .push(&line.name);
            }
            EQUIVALENT => {
                let name = format!("`{}: {}`", line.layer, line.name);
                equivalent.entry(&line.what).or_default().insert(name);
            }
            _ => {}
        }
    }
    let mut text = String::from("Seen only without another layer, which stops the same:\n\n");
    for ((layer, by), names) in doubled {
        text += &item(format_args!("{layer}, by {by}: {}", names.join("; ")));
    }
    text += "\nNo difference, with the reason:\n\n";
    for (reason, names) in equivalent {
        let names: Vec<String> = names.into_iter().collect();
        text += &item(format_args!("{}: {reason}", names.join(", ")));
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
