//! Turns the measurements into a report and writes it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use anyhow::Result;
use sandfork_measure::{Crowd, Kind, Phases, Programs, Report, Samples, Series, Summary};
use serde_json::json;

use crate::Options;
use crate::aims;
use crate::ground::{Ground, target_directory};
use crate::subject::{Preload, Subject};

/// The base of all comparisons.
const BASE: Subject = Subject::Python(Preload::Nothing);

/// Returns a report without measurements.
pub fn head(ground: &Ground, options: &Options) -> Report {
    let (version, python) = (ground.version_text(), ground.python.display());
    let mut head = vec![("interpreter", format!("CPython {version}, {python}"))];
    if let Some(other) = &ground.other_python {
        let other = other.display();
        let note = format!("(python3 on PATH is {other}; `--python` measures another)");
        head.push(("", note));
    }
    head.push(("sandbox", ground.enforced.to_string()));
    let (kernel, processors, load) = (&ground.kernel, ground.processors, ground.load);
    let machine = format!("Linux {kernel}, {processors} processors, load {load:.1} before");
    head.push(("machine", machine));
    if options.quick {
        let note = "quick: fewer rounds; `-` where a tail would mean nothing";
        head.push(("extent", note.to_owned()));
    }
    Report {
        head,
        base: BASE.to_string(),
        facts: json!({
            "python": {
                "executable": ground.python, "version": version,
                "python3_on_path": ground.other_python,
            },
            "environments": {
                "modules": ground.environments.modules,
                "pyperformance": ground.environments.pyperformance,
            },
            "machine": {"kernel": kernel, "processors": processors, "load_before": load},
            "enforced": ground.enforced,
            "quick": options.quick,
        }),
        ..Report::default()
    }
}

/// Adds the times of fresh sandboxes and sessions.
pub fn add_times(report: &mut Report, measured: &BTreeMap<Subject, Samples>) {
    let summaries = measured.iter();
    let summaries = summaries.filter_map(|(subject, times)| Some((*subject, times.summary()?)));
    let summaries: BTreeMap<Subject, Summary> = summaries.collect();
    report.aims.extend(aims::of_times(&summaries));
    let phases = Preload::ALL.into_iter().map(|it| phases(&summaries, it));
    report.phases.extend(phases.flatten());
    let rows = summaries.into_iter();
    let rows = rows.filter(|(subject, _)| !matches!(subject, Subject::Phase(..)));
    report
        .series
        .extend(rows.map(|(subject, summary)| series(subject, summary)));
}

fn series(subject: Subject, summary: Summary) -> Series {
    Series {
        name: subject.to_string(),
        kind: subject.kind(),
        summary,
    }
}

fn phases(summaries: &BTreeMap<Subject, Summary>, preload: Preload) -> Option<Phases> {
    let names = sandfork::internals::outcome::Phases::default().each();
    let median = |(name, _)| {
        let summary = summaries.get(&Subject::Phase(preload, name))?;
        Some((name, summary.median()))
    };
    let medians: Vec<_> = names.into_iter().filter_map(median).collect();
    (!medians.is_empty()).then(|| Phases {
        preload: preload.modules(),
        medians,
    })
}

/// Adds the costs of many live sessions.
pub fn add_crowds(report: &mut Report, crowds: Vec<Crowd>) {
    report.aims.extend(aims::of_crowds(&crowds));
    report.crowds = crowds;
}

/// Adds the programs inside and outside a sandbox.
pub fn add_programs(report: &mut Report, programs: Programs) {
    report.aims.extend(aims::of_programs(&programs));
    report.programs = programs;
}

/// Adds the base of the comparisons, unless it took turns with the contestants.
pub fn add_base(report: &mut Report, base: Option<Summary>) {
    if report.base().is_none() {
        report.series.extend(base.map(|it| series(BASE, it)));
    }
}

/// Writes the report as JSON, and as a chart if there is something to compare. Returns the paths.
pub fn write(report: &Report, options: &Options) -> Result<Vec<PathBuf>> {
    let directory = target_directory().join("bench");
    fs::create_dir_all(&directory)?;
    let mut files = vec![("json", format!("{:#}\n", report.json()))];
    if report.series.iter().any(|series| series.kind == Kind::Ours) {
        files.push(("svg", report.chart()?));
    }
    let write = |(extension, text): (&str, String)| {
        let path = directory.join(options.name()).with_extension(extension);
        fs::write(&path, text)?;
        Ok(path)
    };
    files.into_iter().map(write).collect()
}
