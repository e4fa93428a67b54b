//! All that was measured, as data; and as `target/bench/spawn.json`.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};

use crate::contestant::IN_FLIGHT;
use crate::field::{Facts, Field, target_directory};
use crate::options::{Extent, Options};
use crate::ratio::{AIMS, Aim, Base, Ratio};
use crate::samples::{Samples, Summary};
use crate::subject::{Client, Preload, Subject};

/// Above this spread of `python3 -c pass` the machine was doing too much else.
pub const QUIET_SPREAD: f64 = 0.15;

/// What the table shows and the file holds.
pub struct Report {
    pub facts: Facts,
    pub extent: Extent,
    pub aims: Vec<(Aim, Ratio)>,
    pub summaries: HashMap<Subject, Summary>,
    pub left_out: Vec<String>,
    pub processors: usize,
    pub kernel: String,
    /// Before the first round.
    pub load_before: f64,
}

impl Report {
    pub fn new(
        field: &Field,
        measured: &HashMap<Subject, Samples>,
        options: &Options,
        load_before: f64,
    ) -> Self {
        let summaries: HashMap<Subject, Summary> = measured
            .iter()
            .filter_map(|(subject, samples)| Some((*subject, samples.summary()?)))
            .collect();
        let ratio = |aim: &Aim| {
            let subject = summaries.get(&aim.subject)?;
            let ratio = match aim.base {
                Base::Median(base) => Ratio::of(subject, aim.quantile, summaries.get(&base)?),
                Base::Time(base) => Ratio::of_time(subject, aim.quantile, base),
            };
            Some((*aim, ratio))
        };
        Self {
            facts: field.facts.clone(),
            extent: options.extent,
            aims: AIMS.iter().filter_map(ratio).collect(),
            summaries,
            left_out: field.left_out.clone(),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: first_line("/proc/sys/kernel/osrelease"),
            load_before,
        }
    }

    /// What everything is measured against.
    pub fn python(&self) -> Option<&Summary> {
        self.summaries.get(&Subject::Python(Preload::Nothing))
    }

    /// Everything but the phases, in the table's order.
    pub fn subjects(&self) -> Vec<(Subject, &Summary)> {
        let each = |of: fn(Preload) -> Subject| Preload::ALL.map(of);
        let fixed = [Subject::ColdRun, Subject::Bubblewrap];
        let all = each(Subject::Result)
            .into_iter()
            .chain(each(Subject::Cycle));
        let all = all
            .chain([Subject::Ready])
            .chain(IN_FLIGHT.map(Subject::Each))
            .chain(Client::ALL.map(Subject::Call))
            .chain(Client::ALL.map(Subject::Create))
            .chain(each(Subject::Python))
            .chain(each(Subject::BareFork))
            .chain(fixed);
        all.filter_map(|subject| Some((subject, self.summaries.get(&subject)?)))
            .collect()
    }

    /// Medians of the phases of a run.
    pub fn phases(&self, preload: Preload) -> Vec<(&'static str, Duration)> {
        let names = sandfork::outcome::Phases::default()
            .each()
            .map(|(name, _)| name);
        let median = |name| {
            let summary = self.summaries.get(&Subject::Phase(preload, name))?;
            Some((name, summary.median()))
        };
        names.into_iter().filter_map(median).collect()
    }

    /// Writes the file and says where.
    pub fn write(&self) -> io::Result<PathBuf> {
        let directory = target_directory().join("bench");
        fs::create_dir_all(&directory)?;
        let path = directory.join("spawn.json");
        fs::write(&path, format!("{:#}\n", self.json()))?;
        Ok(path)
    }

    fn json(&self) -> Value {
        let aims = self.aims.iter().map(|(aim, ratio)| {
            json!({
                "subject": aim.subject.to_string(), "quantile": aim.quantile.name(),
                "of": aim.base.to_string(), "ratio": ratio.value, "low": ratio.low,
                "high": ratio.high, "at_most": aim.at_most, "aim": aim.rank.name(),
                "verdict": ratio.verdict(aim.at_most).name(),
            })
        });
        let series = self.subjects().into_iter().map(|(subject, summary)| {
            let us = |q| microseconds(summary.quantile(q));
            json!({
                "subject": subject.to_string(), "n": summary.count(), "min_us": us(0.0),
                "p25_us": us(0.25), "p50_us": us(0.5), "p75_us": us(0.75), "p99_us": us(0.99),
                "max_us": us(1.0),
            })
        });
        let phases = Preload::ALL.map(|preload| {
            let medians = self.phases(preload).into_iter();
            let medians: serde_json::Map<String, Value> = medians
                .map(|(name, time)| (name.to_owned(), json!(microseconds(time))))
                .collect();
            json!({"preload": preload.modules(), "p50_us": medians})
        });
        let (major, minor, patch) = self.facts.version;
        json!({
            "aims": aims.collect::<Vec<_>>(),
            "series": series.collect::<Vec<_>>(),
            "phases": phases,
            "left_out": self.left_out,
            "quick": self.extent == Extent::Quick,
            "enforced": self.facts.enforced,
            "python": {
                "executable": self.facts.python, "version": format!("{major}.{minor}.{patch}"),
                "launcher": self.facts.launcher, "preload_executable": self.facts.preload_python,
            },
            "machine": {
                "kernel": self.kernel, "processors": self.processors,
                "load_before": self.load_before,
                "spread": self.python().map(Summary::spread), "quiet_spread": QUIET_SPREAD,
            },
        })
    }
}

fn microseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

/// Processes that wanted to run, on average of the last minute (proc(5)).
pub fn load_average() -> f64 {
    let line = first_line("/proc/loadavg");
    line.split(' ')
        .next()
        .and_then(|field| field.parse().ok())
        .unwrap_or(f64::NAN)
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}
