//! The table, for a person.

use std::fmt::Write;
use std::time::Duration;

use crate::options::Extent;
use crate::report::{QUIET_SPREAD, Report};
use crate::samples::Summary;
use crate::subject::Preload;

const HEAD: [&str; 6] = ["", "ratio", "of", "aim", "", ""];

/// The whole text.
pub fn render(report: &Report) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    _ = write_head(&mut text, report);
    text.push('\n');
    text.push_str(&columns(&aims(report)));
    text.push('\n');
    text.push_str(&columns(&times(report)));
    text.push('\n');
    for preload in Preload::ALL {
        _ = write_phases(&mut text, report, preload);
    }
    for line in &report.left_out {
        _ = writeln!(text, "left out: {line}");
    }
    text
}

fn write_head(text: &mut String, report: &Report) -> std::fmt::Result {
    let facts = &report.facts;
    let (major, minor, patch) = facts.version;
    writeln!(
        text,
        "interpreter  CPython {major}.{minor}.{patch}, {}",
        facts.python.display()
    )?;
    if let Some(launcher) = &facts.launcher {
        let launcher = launcher.display();
        writeln!(
            text,
            "             (python3 on PATH is a launcher script, {launcher}; not measured)"
        )?;
    }
    if let Some(python) = &facts.preload_python {
        writeln!(text, "             with modules: {}", python.display())?;
    }
    writeln!(text, "sandbox      {}", facts.enforced)?;
    let (kernel, processors) = (&report.kernel, report.processors);
    writeln!(
        text,
        "machine      Linux {kernel}, {processors} processors, load {:.1} before",
        report.load_before
    )?;
    let spread = report.python().map_or(f64::NAN, Summary::spread);
    let percent = spread * 100.0;
    if spread <= QUIET_SPREAD {
        writeln!(
            text,
            "noise        the middle half of `python3 -c pass` lies within {percent:.0} % of its median"
        )?;
    } else {
        writeln!(
            text,
            "noise        TOO MUCH: the middle half of `python3 -c pass` spans {percent:.0} % of its median; run it on a quiet machine"
        )?;
    }
    if report.extent == Extent::Quick {
        writeln!(
            text,
            "             (quick: too few samples for a 99th percentile that means much)"
        )?;
    }
    Ok(())
}

fn aims(report: &Report) -> Vec<Vec<String>> {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    for (aim, ratio) in &report.aims {
        let quantile = aim.quantile.name();
        rows.push(vec![
            format!("{}, {quantile}", aim.subject),
            format!("{:.3}", ratio.value),
            aim.base.to_string(),
            format!("<= {}", aim.at_most),
            aim.rank.name().to_owned(),
            ratio.verdict(aim.at_most).name().to_owned(),
        ]);
    }
    rows
}

fn times(report: &Report) -> Vec<Vec<String>> {
    let head = ["", "p50 / python3 -c pass", "p50 ms", "p99 ms", "n"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let python = report
        .python()
        .map_or(f64::NAN, |python| python.median().as_secs_f64());
    for (subject, summary) in report.subjects() {
        rows.push(vec![
            subject.to_string(),
            format!("{:.3}", summary.median().as_secs_f64() / python),
            milliseconds(summary.median()),
            milliseconds(summary.quantile(0.99)),
            summary.count().to_string(),
        ]);
    }
    rows
}

fn write_phases(text: &mut String, report: &Report, preload: Preload) -> std::fmt::Result {
    let phases = report.phases(preload);
    if phases.is_empty() {
        return Ok(());
    }
    let modules = preload.modules();
    let zygote = if modules.is_empty() {
        "bare".to_owned()
    } else {
        modules.join(", ")
    };
    write!(text, "phases, median us ({zygote}):")?;
    for (name, time) in phases {
        write!(text, "  {name} {}", time.as_micros())?;
    }
    writeln!(text)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

/// Left-aligned words, right-aligned numbers.
fn columns(rows: &[Vec<String>]) -> String {
    let count = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let widths: Vec<usize> = (0..count)
        .map(|column| width(column).unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a string cannot fail.
            _ = if cell.parse::<f64>().is_ok() {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:<width$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
