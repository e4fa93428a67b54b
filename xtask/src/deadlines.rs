//! Measures how long it takes to end guests that resist.

use std::fmt::Write;
use std::fs;
use std::process::{Command, ExitCode};

use serde::Deserialize;

use crate::test::built;
use crate::{Error, document, workspace};

const USAGE: &str = "usage: cargo xtask verify deadlines [--guests N]";

/// The levels, by the names of the files that tests/deadlines writes.
const LEVELS: [&str; 2] = ["full", "standard"];

/// The test program's report on a level.
#[derive(Deserialize)]
struct Report {
    level: String,
    kinds: Vec<Kind>,
    all: Times,
    wrong: Vec<String>,
}

#[derive(Deserialize)]
struct Kind {
    name: String,
    guests: usize,
    ready: usize,
    times: Times,
}

/// Durations in microseconds.
#[derive(Clone, Copy, Deserialize)]
struct Times {
    p50: u64,
    p99: u64,
    max: u64,
}

/// Measures with the release build, and puts the results into the document.
pub fn run(mut arguments: impl Iterator<Item = String>) -> Result<ExitCode, Error> {
    let guests = match (arguments.next().as_deref(), arguments.next()) {
        (None, _) => 1_000,
        (Some("--guests"), Some(guests)) => guests.parse::<usize>()?,
        _ => return Err(USAGE.into()),
    };
    let workspace = workspace();
    let build = ["test", "--release", "--no-run", "--test", "deadlines"];
    let program = built(&workspace, &build, |message| {
        message["target"]["name"] == "deadlines" && message["profile"]["test"] == true
    })?;
    let reports = tempfile::tempdir()?;
    let status = Command::new(program)
        .current_dir(&workspace)
        .env("SANDFORK_DEADLINES_GUESTS", guests.to_string())
        .env("SANDFORK_DEADLINES_REPORTS", reports.path())
        .status()?;
    let mut text = format!("Milliseconds, {}.\n\n", document::here_and_now()?);
    for level in LEVELS {
        // A host without cgroups does not have the level `full`.
        if let Ok(json) = fs::read(reports.path().join(level)) {
            serde_json::from_slice::<Report>(&json)?.tell(&mut text)?;
        }
    }
    let threats = workspace.join("docs/threat-model.md");
    document::replace(&threats, "cargo xtask verify deadlines", &text)?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

impl Report {
    fn tell(&self, text: &mut String) -> Result<(), Error> {
        let guests: usize = self.kinds.iter().map(|kind| kind.guests).sum();
        let Self { level, wrong, .. } = self;
        writeln!(
            text,
            "| level `{level}` | guests | of them ready | p50 | p99 | max |\n|---|---|---|---|---|---|"
        )?;
        for Kind {
            name,
            guests,
            ready,
            times,
        } in &self.kinds
        {
            writeln!(text, "| {name} | {guests} | {ready} | {times} |")?;
        }
        let ready: usize = self.kinds.iter().map(|kind| kind.ready).sum();
        writeln!(text, "| all | {guests} | {ready} | {} |\n", self.all)?;
        match wrong.as_slice() {
            [] => writeln!(
                text,
                "At level `{level}` each ended with `timeout`, and nothing survived.\n"
            )?,
            wrong => writeln!(
                text,
                "What was wrong:\n\n```text\n{}\n```\n",
                wrong.join("\n")
            )?,
        }
        Ok(())
    }
}

impl std::fmt::Display for Times {
    fn fmt(&self, formatter: &mut std::fmt::Formatter) -> std::fmt::Result {
        #[allow(clippy::cast_precision_loss)] // a time of seconds
        let [p50, p99, max] = [self.p50, self.p99, self.max].map(|us| us as f64 / 1e3);
        write!(formatter, "{p50:.1} | {p99:.1} | {max:.1}")
    }
}
