//! Measures how long it takes to end guests that resist.

use std::fs;

use anyhow::Result;
use serde_json::Value;
use xshell::cmd;

use crate::document::{head, here_and_now, replace, row, wrong_or};
use crate::shell;
use crate::test::built;

/// The levels, which are the names of the files that tests/deadlines writes.
const LEVELS: [&str; 2] = ["full", "standard"];

/// Measures with the release build, and puts the results into the document.
pub fn run(guests: usize) -> Result<()> {
    let sh = shell()?;
    let program = built(
        "deadlines",
        &["test", "--release", "--no-run", "--test", "deadlines"],
    )?;
    let reports = tempfile::tempdir()?;
    let passed = cmd!(sh, "{program}")
        .env("SANDFORK_DEADLINES_GUESTS", guests.to_string())
        .env("SANDFORK_DEADLINES_REPORTS", reports.path())
        .run();
    let mut text = format!("Milliseconds, {}.\n\n", here_and_now()?);
    for level in LEVELS {
        // A host without cgroups does not have level `full`.
        if let Ok(report) = fs::read(reports.path().join(level)) {
            text += &markdown(level, &serde_json::from_slice(&report)?);
        }
    }
    replace("threat-model.md", "cargo xtask verify deadlines", &text)?;
    Ok(passed?)
}

/// Formats the test program's report on a level.
fn markdown(level: &str, report: &Value) -> String {
    let kinds = report["kinds"].as_array().map_or(&[][..], Vec::as_slice);
    let line = |name: &str, guests: &Value, ready: &Value, times: &Value| {
        let ms = ["p50", "p99", "max"]
            .map(|name| format!("{:.1}", times[name].as_f64().unwrap_or_default() / 1e3));
        let [p50, p99, max] = ms;
        row([
            name,
            &guests.to_string(),
            &ready.to_string(),
            &p50,
            &p99,
            &max,
        ])
    };
    let title = format!("level `{level}`");
    let mut text = head([&title, "guests", "of them ready", "p50", "p99", "max"]);
    for kind in kinds {
        let name = kind["name"].as_str().unwrap_or_default();
        text += &line(name, &kind["guests"], &kind["ready"], &kind["times"]);
    }
    let all = |of: &str| {
        kinds
            .iter()
            .filter_map(|kind| kind[of].as_u64())
            .sum::<u64>()
    };
    text += &line(
        "all",
        &all("guests").into(),
        &all("ready").into(),
        &report["all"],
    );
    text.push('\n');
    let nothing = format!("At level `{level}` each ended with `timeout`, and nothing survived.");
    text += &wrong_or(&report["wrong"], &nothing);
    text
}
