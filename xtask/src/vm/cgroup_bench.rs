//! Measures the cost of a cgroup for a fresh sandbox, with each version and without cgroups, by running
//! the benchmark in guests that are otherwise identical.

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::image::SYSTEM_PYTHON;
use super::job::{Cgroups, Program};
use super::judge::{Ran, Report};
use super::name;
use crate::document::{head, row};

/// The base of the comparison: depends on the guest's CPU and kernel, but not on cgroups.
const BASE: &str = "bare fork+exit+wait";

/// The rows of the benchmark that are shown.
const SHOWN: [&str; 3] = [
    "fresh sandbox, code to result",
    "fresh sandbox, whole cycle until reaped",
    "fresh sandbox from the pool, code to result",
];

/// Returns the program that measures and prints the report as one line of JSON.
pub fn program(benchmark: &Path, workspace: &Path) -> Program {
    let report = workspace.join("target/bench/spawn.json");
    let command = format!(
        "'{}' --quick --python {SYSTEM_PYTHON} spawn && tr -d '\\n' <'{}'",
        benchmark.display(),
        report.display()
    );
    Program {
        name: "bench".to_owned(),
        words: ["sh", "-c", &command].map(str::to_owned).into(),
    }
}

/// Formats the guests' results as a table.
pub fn table(found: &[(Cgroups, Report)]) -> Result<String> {
    let mut text = head([&["Linux", "cgroup"], &SHOWN[..]].concat());
    let mut left_out = String::new();
    for (cgroups, report) in found {
        let (release, cgroups) = (&report.release, name(cgroups));
        // Debian's 6.12 lacks the memory controller of version 1.
        if let Some(why) = report.failure() {
            left_out = format!("{left_out}\nLeft out: {release}, {cgroups}: {why}\n");
            continue;
        }
        let measured = report.program("bench").and_then(data);
        let measured = measured
            .with_context(|| format!("{release}, cgroup {cgroups}: nothing was measured"))?;
        let base = median(&measured, BASE).context("no bare fork")?;
        let cell = |us: f64| format!("{:.2} ms, {:.1} x", us / 1000.0, us / base);
        let cells = SHOWN.map(|name| median(&measured, name).map_or_else(String::new, cell));
        text += &row([&[release.clone(), cgroups], &cells[..]].concat());
    }
    Ok(text + &left_out)
}

fn data(ran: &Ran) -> Option<Value> {
    let mut lines = ran.lines.iter().filter(|line| line.starts_with('{'));
    lines.find_map(|line| serde_json::from_str(line).ok())
}

/// Returns a median in microseconds.
fn median(report: &Value, name: &str) -> Option<f64> {
    let mut series = report["series"].as_array()?.iter();
    series.find(|series| series["subject"] == name)?["p50_us"].as_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_guest_has_a_row_beside_its_own_fork() {
        let mut report = Report::default();
        for line in [
            "@sandfork-vm {\"Booted\":\"6.12.1\"}",
            "@sandfork-vm {\"Began\":\"bench\"}",
            "fresh sandbox, code to result  2.0",
            r#"{"series": [{"subject": "bare fork+exit+wait", "p50_us": 500.0},
                {"subject": "fresh sandbox, code to result", "p50_us": 2000.0}]}"#,
            "@sandfork-vm {\"Ended\":0}",
        ] {
            report.read_line(&line.replace('\n', ""));
        }
        let expected = "\
| Linux | cgroup | fresh sandbox, code to result | fresh sandbox, whole cycle until reaped | fresh sandbox from the pool, code to result |
|---|---|---|---|---|
| 6.12.1 | v2 | 2.00 ms, 4.0 x |  |  |
";
        let table = table(&[(Cgroups::V2, report)]).expect("it was measured");
        assert_eq!(table, expected);
    }

    #[test]
    fn a_kernel_without_a_controller_is_left_out() {
        let mut report = Report::default();
        report.read_line("@sandfork-vm {\"Booted\":\"6.12.1\"}");
        report.read_line("@sandfork-vm {\"Failed\":\"mount: EINVAL\"}");
        let table = table(&[(Cgroups::V1, report)]).expect("it says so");
        assert!(
            table.ends_with("\nLeft out: 6.12.1, v1: mount: EINVAL\n"),
            "{table}"
        );
    }

    #[test]
    fn a_guest_that_measured_nothing_is_an_error() {
        assert!(table(&[(Cgroups::V1, Report::default())]).is_err());
    }
}
