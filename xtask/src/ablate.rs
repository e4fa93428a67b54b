//! Runs the escape tests with one layer removed at a time, to find what that layer alone stops.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use serde_json::Value;

use crate::test::built;
use crate::{Error, document, workspace};

const COMMAND: &str = "cargo xtask verify ablate";

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

/// Runs the tests and puts the tables into the threat model. Without names in `layers`, it runs
/// all.
pub fn run(layers: &[String]) -> Result<ExitCode, Error> {
    if !nix::unistd::geteuid().is_root() {
        return Err("layers can be taken from a jail by root only: run it as root".into());
    }
    if let Some(unknown) = layers.iter().find(|name| !LAYERS.contains(&name.as_str())) {
        return Err(format!("`{unknown}` is no layer: {}", LAYERS.join(", ")).into());
    }
    let is_asked_for = |layer: &&str| layers.is_empty() || layers.iter().any(|one| one == layer);
    let mutants = program("mutants")?;
    let escape = program("escape")?;
    let mut suites = BTreeMap::new();
    for layer in LAYERS.into_iter().filter(is_asked_for) {
        println!("without {layer}");
        suites.insert(layer, suite(&escape, &mutants, layer)?);
    }
    let text = format!("{}\n\n{}", heading(&suites)?, tables(&suites));
    println!("{text}");
    if layers.is_empty() {
        document::replace(&workspace().join("docs/threat-model.md"), COMMAND, &text)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn program(name: &str) -> Result<std::path::PathBuf, Error> {
    let is_it =
        |message: &Value| message["target"]["name"] == name && message["executable"].is_string();
    built(&workspace(), &["build", "--test", name], is_it)
}

/// Removing a layer requires root, and the tests' launcher runs as root too.
const AS_ROOT: &str = "::root";

/// The tests spend most of their time waiting for limits.
const AT_ONCE: &str = "8";

fn suite(escape: &Path, mutants: &Path, layer: &str) -> Result<Suite, Error> {
    let through = format!("{} --without {layer}", mutants.display());
    let mut child = Command::new(escape)
        .args([AS_ROOT, "--test-threads", AT_ONCE])
        .env("SANDFORK_ESCAPE_THROUGH", through)
        .current_dir(workspace())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().ok_or("it has no output")?;
    let mut suite = Suite::default();
    let mut failed = Failures::default();
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        if line.starts_with("test [") {
            println!("{line}");
        }
        failed.hear(&line, &mut suite);
    }
    child.wait()?;
    if suite.tried.is_empty() {
        return Err(format!("without {layer} nothing was tried").into());
    }
    Ok(suite)
}

/// Parses the report of a test program: first a line for each test, then the reasons of failures,
/// in order.
#[derive(Debug, Default)]
struct Failures {
    /// The failed attempts in the order in which their reasons follow.
    failed: Vec<Attempt>,
    told: usize,
    /// Whether the next line is the reason of a failure.
    is_next: bool,
}

impl Failures {
    fn hear(&mut self, line: &str, suite: &mut Suite) {
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
            let Some(attempt) = self.failed.get(self.told).cloned() else {
                return;
            };
            self.told += 1;
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

fn heading(suites: &BTreeMap<&str, Suite>) -> Result<String, Error> {
    let tried = suites.values().map(|suite| suite.tried.len()).max();
    Ok(format!(
        "{} attempts, as root at level `full`, {}:",
        tried.unwrap_or(0),
        document::here_and_now()?
    ))
}

fn tables(suites: &BTreeMap<&str, Suite>) -> String {
    let layers: Vec<&str> = LAYERS
        .into_iter()
        .filter(|name| suites.contains_key(name))
        .collect();
    let all: BTreeSet<&Attempt> = suites.values().flat_map(|suite| &suite.tried).collect();
    let class = |attempt: &Attempt| attempt.0.split("::").next().unwrap_or_default().to_owned();
    let classes: BTreeSet<String> = all.iter().map(|attempt| class(attempt)).collect();
    let mut text = format!(
        "| class | attempts | {} | by more than one layer |\n|---|---|{}---|\n",
        layers.join(" | "),
        "---|".repeat(layers.len())
    );
    let row = |name: &str, is_in: &dyn Fn(&Attempt) -> bool| {
        let of: Vec<&&Attempt> = all.iter().filter(|attempt| is_in(attempt)).collect();
        let alone = |layer: &&str| {
            let escaped = |attempt: &&&&Attempt| suites[*layer].escaped.contains(**attempt);
            of.iter()
                .filter(|attempt| escaped(attempt))
                .count()
                .to_string()
        };
        let counts: Vec<String> = layers.iter().map(alone).collect();
        let free = |attempt: &&&&Attempt| {
            suites
                .values()
                .all(|suite| !suite.escaped.contains(**attempt))
        };
        let several = of.iter().filter(|attempt| free(attempt)).count();
        format!(
            "| {name} | {} | {} | {several} |\n",
            of.len(),
            counts.join(" | ")
        )
    };
    for name in &classes {
        text += &row(name, &|attempt| class(attempt) == *name);
    }
    text += &row("all", &|_| true);
    text += "\nWhat one layer alone stops, under both policies or the one that is named:\n\n";
    for layer in &layers {
        // Writing to a string does not fail.
        _ = writeln!(text, "- {layer}: {}", named(&suites[*layer].escaped));
    }
    let unclear: Vec<String> = layers
        .iter()
        .filter(|layer| !suites[**layer].unclear.is_empty())
        .map(|layer| format!("- without {layer}: {}\n", named(&suites[*layer].unclear)))
        .collect();
    if !unclear.is_empty() {
        text += "\nNeither let nor held, because the run itself failed without the layer:\n\n";
        text += &unclear.concat();
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
    fn an_attempt_is_let_held_or_unclear() {
        let (mut suite, mut failures) = (Suite::default(), Failures::default());
        for line in REPORT.lines() {
            failures.hear(line, &mut suite);
        }
        let of = |set: &BTreeSet<Attempt>| named(set);
        assert_eq!(of(&suite.escaped), "NE-001_vsock (standard)");
        assert_eq!(of(&suite.held), "NE-001_vsock (strict)");
        assert_eq!(of(&suite.unclear), "NE-003_none (strict)");
        assert_eq!(suite.tried.len(), 4);
        let tables = tables(&BTreeMap::from([("seccomp", suite)]));
        assert!(tables.contains("| network | 4 | 1 | 3 |\n"), "{tables}");
    }
}
