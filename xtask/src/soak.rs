//! Runs very many guests of every kind, and counts what they leave behind.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write;
use std::fs;
use std::process::{Command, ExitCode};

use serde::Deserialize;

use crate::test::built;
use crate::{Error, document, workspace};

const USAGE: &str = "usage: cargo xtask verify soak [--runs N] [--seed N]";

/// The report of the program tests/soak.
#[derive(Deserialize)]
struct Report {
    seed: u64,
    runs: usize,
    zygotes_killed: usize,
    seconds: f64,
    endings: BTreeMap<String, usize>,
    before: Census,
    rests: Vec<Rest>,
    after: Census,
    wrong: Vec<String>,
}

#[derive(Deserialize)]
struct Census(BTreeMap<String, BTreeMap<String, usize>>);

#[derive(Deserialize)]
struct Rest {
    runs: usize,
    census: Census,
    library: Memory,
    served: Memory,
}

#[derive(Clone, Copy, Deserialize)]
struct Memory {
    resident: u64,
    proportional: u64,
}

/// Runs the requested number with the release build, and puts the results into the document.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<ExitCode, Error> {
    let workspace = workspace();
    let mut settings = BTreeMap::from([("SANDFORK_SOAK_RUNS", 100_000)]);
    let mut arguments = arguments;
    while let Some(argument) = arguments.next() {
        let name = match argument.as_str() {
            "--runs" => "SANDFORK_SOAK_RUNS",
            "--seed" => "SANDFORK_SOAK_SEED",
            _ => return Err(USAGE.into()),
        };
        settings.insert(name, arguments.next().ok_or(USAGE)?.parse::<u64>()?);
    }
    let build = ["test", "--release", "--no-run", "--test", "soak"];
    let program = built(&workspace, &build, |message| {
        message["target"]["name"] == "soak" && message["profile"]["test"] == true
    })?;
    let path = env::temp_dir().join(format!("sandfork-soak-{}.json", std::process::id()));
    let mut soak = Command::new(program);
    for (name, value) in settings {
        soak.env(name, value.to_string());
    }
    let status = soak
        .current_dir(&workspace)
        .env("SANDFORK_SOAK_REPORT", &path)
        .status()?;
    let report = fs::read(&path).map_err(|error| format!("no report, {status}: {error}"))?;
    fs::remove_file(&path)?;
    let report: Report = serde_json::from_slice(&report)?;
    let threats = workspace.join("docs/threat-model.md");
    document::replace(&threats, "cargo xtask verify soak", &report.in_words()?)?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Census {
    fn total(&self, kind: &str) -> usize {
        self.0.get(kind).map_or(0, |names| names.values().sum())
    }
}

/// The counted resources, by their names in the report and in the document.
const COUNTED: [(&str, &str); 11] = [
    ("processes", "processes"),
    ("zombies", "zombies"),
    ("threads", "threads of the supervisors"),
    ("descriptors", "descriptors of supervisors and zygotes"),
    ("mounts", "mounts of the host and the zygotes"),
    ("namespaces", "namespaces"),
    ("cgroups", "cgroups in use"),
    (
        "kept-for-another-worker",
        "cgroups and network namespaces kept for another worker, with their open files",
    ),
    ("files", "files and directories"),
    ("ipc-objects", "IPC objects"),
    ("keys", "keys of the host's users"),
];

impl Report {
    fn in_words(&self) -> Result<String, Error> {
        let answers: usize = self.endings.values().sum();
        #[allow(clippy::cast_precision_loss)] // a count of runs
        let rate = self.runs as f64 / self.seconds;
        let mut text = format!(
            "{} workers with {answers} answers {}, seed {}, in {:.0} s: {rate:.0} a second. {} zygotes were killed \
             meanwhile.\n\n",
            self.runs,
            document::here_and_now()?,
            self.seed,
            self.seconds,
            self.zygotes_killed
        );
        match self.wrong.as_slice() {
            [] => text.push_str("Nothing was left, and every answer belonged to its question.\n\n"),
            wrong => writeln!(
                text,
                "What was wrong:\n\n```text\n{}\n```\n",
                wrong.join("\n")
            )?,
        }
        text.push_str("| ending | answers |\n|---|---|\n");
        for (ending, count) in &self.endings {
            writeln!(text, "| {ending} | {count} |")?;
        }
        text.push('\n');
        self.table(&mut text)?;
        Ok(text)
    }

    fn table(&self, text: &mut String) -> Result<(), Error> {
        text.push_str("| | before |");
        for rest in &self.rests {
            write!(text, " {} workers |", rest.runs)?;
        }
        writeln!(
            text,
            " in the end |\n|---|{}",
            "---|".repeat(self.rests.len() + 2)
        )?;
        for (kind, name) in COUNTED {
            write!(text, "| {name} | {} |", self.before.total(kind))?;
            for rest in &self.rests {
                write!(text, " {} |", rest.census.total(kind))?;
            }
            writeln!(text, " {} |", self.after.total(kind))?;
        }
        self.memory(
            text,
            "KiB resident, of which its own share: the library's process",
            |rest| rest.library,
        )?;
        self.memory(text, "the same of `sandfork serve`", |rest| rest.served)
    }

    fn memory(
        &self,
        text: &mut String,
        name: &str,
        of: impl Fn(&Rest) -> Memory,
    ) -> Result<(), Error> {
        write!(text, "| {name} | |")?;
        for rest in &self.rests {
            let Memory {
                resident,
                proportional,
            } = of(rest);
            write!(text, " {}, {} |", resident / 1024, proportional / 1024)?;
        }
        Ok(writeln!(text, " |")?)
    }
}
