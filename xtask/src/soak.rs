//! Runs very many guests of every kind, and counts what they leave behind.

use std::fs;

use anyhow::{Context, Result};
use serde_json::Value;
use xshell::cmd;

use crate::document::{head, here_and_now, replace, row, wrong_or};
use crate::shell;
use crate::test::built;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The number of runs
    #[arg(long, default_value_t = 100_000)]
    runs: u64,
    /// The seed; the same seed makes the same requests
    #[arg(long)]
    seed: Option<u64>,
}

/// Runs the requested number with the release build, and puts the results into the document.
pub fn run(options: &Options) -> Result<()> {
    let sh = shell()?;
    let program = built("soak", &["test", "--release", "--no-run", "--test", "soak"])?;
    let place = tempfile::tempdir()?;
    let path = place.path().join("report.json");
    let mut soak = cmd!(sh, "{program}")
        .env("SANDFORK_SOAK_RUNS", options.runs.to_string())
        .env("SANDFORK_SOAK_REPORT", &path);
    if let Some(seed) = options.seed {
        soak = soak.env("SANDFORK_SOAK_SEED", seed.to_string());
    }
    let passed = soak.run();
    let report = fs::read(&path).with_context(|| format!("there is no report: {passed:?}"))?;
    let text = markdown(&serde_json::from_slice(&report)?, &here_and_now()?);
    replace("threat-model.md", "cargo xtask verify soak", &text)?;
    Ok(passed?)
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

/// Formats the report of tests/soak.
fn markdown(report: &Value, here_and_now: &str) -> String {
    let number = |name: &str| report[name].as_f64().unwrap_or_default();
    let seconds = number("seconds");
    let mut text = format!(
        "{} workers with {} answers {here_and_now}, seed {}, in {seconds:.0} s: {:.0} a second. {} zygotes \
         were killed meanwhile. {} were forks of sessions, {} had the state of one that was rolled back, and {} \
         that of one that was paused.\n\n",
        report["runs"],
        sum(&report["endings"]),
        report["seed"],
        number("runs") / seconds,
        report["zygotes_killed"],
        report["copies"]["forks"],
        report["copies"]["rollbacks"],
        report["copies"]["pauses"],
    );
    let nothing = "Nothing was left, and every answer belonged to its question.";
    text += &wrong_or(&report["wrong"], nothing);
    text += &head(["ending", "answers"]);
    for (ending, count) in report["endings"].as_object().into_iter().flatten() {
        text += &row([ending, &count.to_string()]);
    }
    text.push('\n');
    let rests = report["rests"].as_array().map_or(&[][..], Vec::as_slice);
    let each = |of: &dyn Fn(&Value) -> String| rests.iter().map(of).collect::<Vec<_>>();
    let line = |first: &str, before: String, each: Vec<String>, after: String| {
        [vec![first.to_owned(), before], each, vec![after]].concat()
    };
    let workers = each(&|rest| format!("{} workers", rest["runs"]));
    text += &head(line(
        "",
        "before".to_owned(),
        workers,
        "in the end".to_owned(),
    ));
    for (kind, name) in COUNTED {
        let count = |census: &Value| sum(&census[kind]).to_string();
        let rests = each(&|rest| count(&rest["census"]));
        text += &row(line(
            name,
            count(&report["before"]),
            rests,
            count(&report["after"]),
        ));
    }
    for (process, name) in [
        (
            "library",
            "KiB resident, of which its own share: the library's process",
        ),
        ("served", "the same of `sandfork serve`"),
        ("zygote", "the same of the zygote with the most"),
    ] {
        let kib = |memory: &Value| memory.as_u64().unwrap_or_default() / 1024;
        let memory = each(&|rest| {
            let memory = &rest[process];
            format!(
                "{}, {}",
                kib(&memory["resident"]),
                kib(&memory["proportional"])
            )
        });
        text += &row(line(name, String::new(), memory, String::new()));
    }
    text
}

fn sum(counts: &Value) -> u64 {
    let counts = counts
        .as_object()
        .into_iter()
        .flat_map(|counts| counts.values());
    counts.filter_map(Value::as_u64).sum()
}
