//! Runs the escape tests with one layer removed at a time, to find what that layer alone stops.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Result, bail, ensure};
use xshell::cmd;

use crate::document::{head, here_and_now, item, replace, row};
use crate::shell;
use crate::tally::for_each_line;
use crate::test::test_program;

const LAYERS: [&str; 7] = [
    "namespaces",
    "mounts",
    "landlock",
    "seccomp",
    "capabilities",
    "rlimits",
    "cgroup",
];

/// An attempt: a probe under a policy.
type Attempt = (String, String);

/// The results of the escape tests without one layer.
#[derive(Debug, Default)]
struct Suite {
    tried: BTreeSet<Attempt>,
    escaped: BTreeSet<Attempt>,
    /// Attempts that were stopped, but by another layer than the probe expects.
    held: BTreeSet<Attempt>,
    /// Attempts whose run itself failed.
    unclear: BTreeSet<Attempt>,
}

/// Runs the tests and puts the tables into the threat model. An empty `layers` means all
/// layers.
pub fn run(layers: &[String]) -> Result<()> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "layers can be taken from a jail by root only: run it as root"
    );
    if let Some(unknown) = layers.iter().find(|name| !LAYERS.contains(&name.as_str())) {
        bail!("`{unknown}` is no layer: {}", LAYERS.join(", "));
    }
    let is_selected = |layer: &&str| layers.is_empty() || layers.iter().any(|one| one == layer);
    let (mutants, escape) = (
        test_program("mutants", "dev")?,
        test_program("escape", "dev")?,
    );
    let mut suites = Vec::new();
    for layer in LAYERS.into_iter().filter(is_selected) {
        println!("without {layer}");
        suites.push((layer, suite(&escape, &mutants, layer)?));
    }
    let tried = suites
        .iter()
        .map(|(_, suite)| suite.tried.len())
        .max()
        .unwrap_or(0);
    let (here, tables) = (here_and_now()?, tables(&suites));
    let text = format!("{tried} attempts, as root at level `full`, {here}:\n\n{tables}");
    println!("{text}");
    if layers.is_empty() {
        replace("threat-model.md", "cargo xtask verify ablate", &text)?;
    }
    Ok(())
}

/// Removing a layer requires root, and the tests' launcher runs as root too.
const AS_ROOT: &str = "::root";

/// The tests spend most of their time waiting for limits.
const AT_ONCE: &str = "8";

fn suite(escape: &Path, mutants: &Path, layer: &str) -> Result<Suite> {
    let sh = shell()?;
    let through = format!("{} --without {layer}", mutants.display());
    let mut tests: Command = cmd!(sh, "{escape} {AS_ROOT} --test-threads {AT_ONCE}")
        .env("SANDFORK_ESCAPE_THROUGH", through)
        .into();
    let (mut suite, mut failed) = (Suite::default(), Failures::default());
    for_each_line(&mut tests, |line| {
        if line.starts_with("test [") {
            println!("{line}");
        }
        failed.read_line(line, &mut suite);
    })?;
    ensure!(!suite.tried.is_empty(), "without {layer} nothing was tried");
    Ok(suite)
}

/// Parses the report of a test program: first a line for each test, then the reasons of failures,
/// in order.
#[derive(Debug, Default)]
struct Failures {
    /// The failed attempts in the order in which their reasons follow.
    failed: Vec<Attempt>,
    explained: usize,
    /// Whether the next line is the reason of a failure.
    is_next: bool,
}

impl Failures {
    fn read_line(&mut self, line: &str, suite: &mut Suite) {
        if let Some((attempt, result)) = parse(line) {
            if attempt.1 == "open" {
                return;
            }
            suite.tried.insert(attempt.clone());
            if result == "FAILED" {
                self.failed.push(attempt);
            }
        } else if line.starts_with("---- ") {
            self.is_next = true;
        } else if std::mem::take(&mut self.is_next) {
            let Some(attempt) = self.failed.get(self.explained).cloned() else {
                return;
            };
            self.explained += 1;
            let why = match line {
                _ if line.starts_with("held, but") => &mut suite.held,
                _ if line.starts_with("ESCAPED") || line.starts_with("host:") => &mut suite.escaped,
                _ => &mut suite.unclear,
            };
            why.insert(attempt);
        }
    }
}

/// `test [strict] class::ID_name::root ... ok`
fn parse(line: &str) -> Option<(Attempt, &str)> {
    let (policy, rest) = line.strip_prefix("test [")?.split_once(']')?;
    let (name, result) = rest.split_once(" ... ")?;
    let name = name.trim().strip_suffix(AS_ROOT)?;
    Some(((name.to_owned(), policy.to_owned()), result.trim()))
}

fn tables(suites: &[(&str, Suite)]) -> String {
    let all: BTreeSet<&Attempt> = suites.iter().flat_map(|(_, suite)| &suite.tried).collect();
    let class = |attempt: &Attempt| attempt.0.split("::").next().unwrap_or_default().to_owned();
    let classes: BTreeSet<String> = all.iter().map(|attempt| class(attempt)).collect();
    let line = |name: &str, is_in: &dyn Fn(&Attempt) -> bool| {
        let of = || all.iter().filter(|attempt| is_in(attempt));
        let escaped = |suite: &Suite| of().filter(|it| suite.escaped.contains(**it)).count();
        let is_held = |it: &&&Attempt| {
            suites
                .iter()
                .all(|(_, suite)| !suite.escaped.contains(**it))
        };
        let mut numbers = vec![of().count()];
        numbers.extend(suites.iter().map(|(_, suite)| escaped(suite)));
        numbers.push(of().filter(is_held).count());
        let numbers: Vec<String> = numbers.iter().map(usize::to_string).collect();
        row([&[name.to_owned()], &numbers[..]].concat())
    };
    let layers: Vec<&str> = suites.iter().map(|(layer, _)| *layer).collect();
    let mut text = head(
        [
            &["class", "attempts"],
            &layers[..],
            &["by more than one layer"],
        ]
        .concat(),
    );
    for name in &classes {
        text += &line(name, &|attempt| class(attempt) == *name);
    }
    text += &line("all", &|_| true);
    text += "\nWhat one layer alone stops, under both policies or the one that is named:\n\n";
    for (layer, suite) in suites {
        text += &item(format_args!("{layer}: {}", named(&suite.escaped)));
    }
    let unclear: String = suites
        .iter()
        .filter(|(_, suite)| !suite.unclear.is_empty())
        .map(|(layer, suite)| item(format_args!("without {layer}: {}", named(&suite.unclear))))
        .collect();
    if !unclear.is_empty() {
        text += "\nNeither let nor held, because the run itself failed without the layer:\n\n";
        text += &unclear;
    }
    text
}

fn named(attempts: &BTreeSet<Attempt>) -> String {
    let mut policies: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, policy) in attempts {
        let name = name.split("::").nth(1).unwrap_or(name);
        policies.entry(name).or_default().push(policy);
    }
    let names = policies
        .into_iter()
        .map(|(name, policies)| match policies[..] {
            [one] => format!("{name} ({one})"),
            _ => name.to_owned(),
        });
    let names: Vec<String> = names.collect();
    if names.is_empty() {
        "nothing".to_owned()
    } else {
        names.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
test [open]     network::NE-001_vsock::root ... ok
test [standard] network::NE-001_vsock::root ... FAILED
test [strict]   network::NE-001_vsock::root ... FAILED
test [strict]   network::NE-002_ports::root ... ok
test [strict]   network::NE-003_none::root  ... FAILED

failures:

---- network::NE-001_vsock::root ----
ESCAPED fd 3

---- network::NE-001_vsock::root ----
held, but for no reason that it allows: CONTAINED EACCES

---- network::NE-003_none::root ----
no outcome, exit code 125
";

    #[test]
    fn attempts_are_classified() {
        let (mut suite, mut failures) = (Suite::default(), Failures::default());
        for line in REPORT.lines() {
            failures.read_line(line, &mut suite);
        }
        let of = |set: &BTreeSet<Attempt>| named(set);
        assert_eq!(of(&suite.escaped), "NE-001_vsock (standard)");
        assert_eq!(of(&suite.held), "NE-001_vsock (strict)");
        assert_eq!(of(&suite.unclear), "NE-003_none (strict)");
        assert_eq!(suite.tried.len(), 4);
        let tables = tables(&[("seccomp", suite)]);
        assert!(tables.contains("| network | 4 | 1 | 3 |\n"), "{tables}");
    }
}
