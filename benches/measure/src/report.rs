//! All results of a benchmark run, before they are rendered.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::crowd::Crowd;
use crate::overhead::{self, Programs};
use crate::ratio::{Quantile, Ratio, Verdict};
use crate::samples::{Summary, microseconds};

/// The spread of the base above which the machine had too much other load.
pub const QUIET_SPREAD: f64 = 0.15;

/// The contents of the table, the file and the chart.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Lines above the table: a name and its text.
    pub head: Vec<(&'static str, String)>,
    /// The name of the series that all times are compared with.
    pub base: String,
    /// Ratios with a target.
    pub aims: Vec<Aim>,
    /// The measured times.
    pub series: Vec<Series>,
    /// How long each phase of a run takes.
    pub phases: Vec<Phases>,
    /// The costs of many live sessions.
    pub crowds: Vec<Crowd>,
    /// The same programs inside and outside a sandbox.
    pub programs: Programs,
    /// One line for each subject that was not measured, with the reason.
    pub left_out: Vec<String>,
    /// The head as JSON.
    pub facts: Value,
}

/// A subject that was measured many times.
#[derive(Clone, Debug, Serialize)]
pub struct Series {
    /// Its name.
    #[serde(rename = "subject")]
    pub name: String,
    /// Its role in the comparison.
    pub kind: Kind,
    /// Its times.
    #[serde(flatten)]
    pub summary: Summary,
}

/// The role of a series in the comparison.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A Sandfork subject.
    Ours,
    /// An alternative to Sandfork.
    Peer,
    /// A process without a sandbox.
    Bare,
    /// A Sandfork subject that is shown only in the table.
    Detail,
}

/// A ratio with a target, and the value reached.
#[derive(Clone, Debug)]
pub struct Aim {
    /// The subject that is compared.
    pub subject: String,
    /// The quantile that is compared; `None` if the subject is not a time.
    pub quantile: Option<Quantile>,
    /// The base that the subject is compared with.
    pub base: String,
    /// The ratio reached.
    pub ratio: Ratio,
    /// The target.
    pub at_most: f64,
    /// The rank of the target in the project.
    pub rank: Rank,
}

impl Aim {
    /// Returns the subject with its quantile.
    pub fn label(&self) -> String {
        match self.quantile {
            Some(quantile) => format!("{}, {}", self.subject, quantile.name()),
            None => self.subject.clone(),
        }
    }
}

/// The rank of a target in the project.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rank {
    /// An early target.
    First,
    /// The final target.
    Final,
}

impl Rank {
    /// Returns the rank's name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Final => "final",
        }
    }
}

/// Medians of the phases of a run.
#[derive(Clone, Debug)]
pub struct Phases {
    /// The modules that the zygote has preloaded.
    pub preload: &'static [&'static str],
    /// Each phase and its median.
    pub medians: Vec<(&'static str, Duration)>,
}

impl Report {
    /// Returns the summary that all others are compared with, if measured.
    pub fn base(&self) -> Option<&Summary> {
        let base = self.series.iter().find(|series| series.name == self.base);
        base.map(|series| &series.summary)
    }

    /// Returns the width of the base's middle half, as a share of its median.
    pub fn spread(&self) -> Option<f64> {
        self.base().map(Summary::spread)
    }

    /// Returns the verdict on a target. If the machine was too noisy, times get no other verdict.
    pub fn verdict(&self, aim: &Aim) -> Verdict {
        if aim.quantile.is_some() && self.is_noisy() == Some(true) {
            return Verdict::TooNoisy;
        }
        aim.ratio.verdict(aim.at_most)
    }

    /// Returns the whole report as JSON for programs, with times in microseconds.
    pub fn json(&self) -> Value {
        let aim = |aim: &Aim| {
            json!({
                "subject": aim.subject, "quantile": aim.quantile.map(Quantile::name),
                "of": aim.base, "ratio": aim.ratio, "at_most": aim.at_most,
                "aim": aim.rank.name(), "verdict": self.verdict(aim).name(),
            })
        };
        let phases = |phases: &Phases| {
            let us = |(name, time): &(&str, _)| ((*name).to_owned(), microseconds(*time).into());
            let medians: Map<String, Value> = phases.medians.iter().map(us).collect();
            json!({"preload": phases.preload, "p50_us": medians})
        };
        json!({
            "facts": self.facts,
            "base": self.base,
            "noise": {
                "spread": self.spread(), "quiet_spread": QUIET_SPREAD, "noisy": self.is_noisy(),
            },
            "aims": self.aims.iter().map(aim).collect::<Vec<_>>(),
            "series": self.series,
            "phases": self.phases.iter().map(phases).collect::<Vec<_>>(),
            "live_sessions": self.crowds,
            "inside_outside": overhead::json(&self.programs),
            "left_out": self.left_out,
        })
    }

    /// Returns whether other load on the machine makes the ratios unreliable; `None` without a base.
    pub fn is_noisy(&self) -> Option<bool> {
        self.spread().map(|spread| spread > QUIET_SPREAD)
    }
}

/// A report that tests of the renderers share.
#[cfg(test)]
pub mod examples {
    use super::*;
    use crate::overhead::Overhead;
    use crate::samples::Samples;

    fn times(count: u64, first_us: u64, step_us: u64) -> Summary {
        let times = (0..count).map(|i| Duration::from_micros(first_us + i * step_us));
        times.collect::<Samples>().summary().expect("not empty")
    }

    /// Returns a report with one of everything.
    pub fn report() -> Report {
        let series = |name: &str, kind, summary| Series {
            name: name.to_owned(),
            kind,
            summary,
        };
        let pair = |above, below| (Duration::from_micros(above), Duration::from_micros(below));
        Report {
            head: vec![("interpreter", "CPython 3.11.2".to_owned())],
            base: "python3 -c pass".to_owned(),
            aims: vec![Aim {
                subject: "fresh sandbox".to_owned(),
                quantile: Some(Quantile::P50),
                base: "python3 -c pass".to_owned(),
                ratio: Ratio {
                    low: 0.08,
                    value: 0.09,
                    high: 0.11,
                },
                at_most: 0.1,
                rank: Rank::Final,
            }],
            series: vec![
                series("fresh sandbox", Kind::Ours, times(4_000, 900, 1)),
                series("16 in flight", Kind::Detail, times(4, 800, 10)),
                series("python3 -c pass", Kind::Bare, times(400, 10_000, 1)),
                series("bwrap & <python3>", Kind::Peer, times(40, 16_000, 10)),
            ],
            phases: vec![Phases {
                preload: &["numpy"],
                medians: vec![("fork", Duration::from_micros(552))],
            }],
            crowds: vec![Crowd {
                sessions: 1_000,
                resident: Some(1_500_000),
                cgroup: None,
                supervisor: Some(30_000),
                shared: Some(9_000_000),
                descriptors: Some(12),
                processes: Some(2),
                cell: Some(times(400, 150, 1)),
                again: Some(times(20, 100, 1)),
            }],
            programs: Programs {
                set: "pyperformance 1.2".to_owned(),
                each: vec![Overhead {
                    program: "nbody".to_owned(),
                    is_cpu_bound: true,
                    pairs: vec![pair(1_010, 1_000), pair(2_000, 2_000), pair(3_030, 3_000)],
                }],
            },
            left_out: vec!["firejail: not installed".to_owned()],
            facts: serde_json::json!({"processors": 2}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_all_of_its_parts() {
        let json = examples::report().json();
        assert_eq!(json["facts"]["processors"], 2);
        assert_eq!(json["noise"]["noisy"], false);
        assert_eq!(json["aims"][0]["verdict"], "too close to tell");
        assert_eq!(json["aims"][0]["quantile"], "p50");
        assert_eq!(json["aims"][0]["ratio"]["low"], 0.08);
        assert_eq!(json["phases"][0]["p50_us"]["fork"], 552.0);
        assert_eq!(json["live_sessions"][0]["sessions"], 1_000);
        assert_eq!(json["inside_outside"]["each"][0]["program"], "nbody");
        assert_eq!(json["left_out"][0], "firejail: not installed");
        assert_eq!(json["series"][0]["p99_9_us"], 4_895.0);
        assert_eq!(json["series"][1]["p99_us"], Value::Null);
        assert_eq!(json["series"][3]["kind"], "peer");
    }

    #[test]
    fn spread_of_the_base_marks_a_noisy_machine() {
        let mut report = examples::report();
        assert_eq!(report.is_noisy(), Some(false));
        for series in &mut report.series {
            if series.name == report.base {
                let times = [1, 10, 10, 10, 20, 20].map(Duration::from_millis);
                let times: crate::Samples = times.into_iter().collect();
                series.summary = times.summary().expect("not empty");
            }
        }
        assert_eq!(report.is_noisy(), Some(true));
        let mut aim = report.aims[0].clone();
        assert_eq!(report.verdict(&aim), Verdict::TooNoisy);
        // A count has no uncertainty.
        aim.quantile = None;
        assert_eq!(report.verdict(&aim), Verdict::Unclear);
        report.series.clear();
        assert_eq!(report.is_noisy(), None);
    }
}
