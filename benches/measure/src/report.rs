//! All that a run of the benchmark found, before anything is rendered.

use std::time::Duration;

use serde_json::Value;

use crate::crowd::Crowd;
use crate::overhead::Programs;
use crate::ratio::{Quantile, Ratio, Verdict};
use crate::samples::Summary;

/// Above this spread of the base the machine was doing too much else.
pub const QUIET_SPREAD: f64 = 0.15;

/// What the table, the file and the chart show.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Lines above the table: a name, and what there is to say.
    pub head: Vec<(&'static str, String)>,
    /// What all times are compared with, by its name in `series`.
    pub base: String,
    /// Ratios that are aimed at.
    pub aims: Vec<Aim>,
    /// What was measured as times.
    pub series: Vec<Series>,
    /// Where the time of a run goes.
    pub phases: Vec<Phases>,
    /// Many live sessions.
    pub crowds: Vec<Crowd>,
    /// The same programs inside and outside.
    pub programs: Programs,
    /// One line for each thing that is not in it, with the reason.
    pub left_out: Vec<String>,
    /// The head again, as data.
    pub facts: Value,
}

/// Something that was measured many times.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// What it is in a comparison.
    pub kind: Kind,
    /// Its times.
    pub summary: Summary,
}

/// Whose time it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Kind {
    /// Sandfork's.
    Ours,
    /// Of what one would pick instead.
    Peer,
    /// With nothing around it.
    Bare,
    /// Sandfork's, for the table only.
    Detail,
}

impl Kind {
    /// As the file has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Peer => "peer",
            Self::Bare => "bare",
            Self::Detail => "detail",
        }
    }
}

/// A ratio that is aimed at, and what was reached.
#[derive(Clone, Debug)]
pub struct Aim {
    /// What is compared.
    pub subject: String,
    /// Which of its times; the number itself where it is no time.
    pub quantile: Option<Quantile>,
    /// With what.
    pub base: String,
    /// What was reached.
    pub ratio: Ratio,
    /// What was aimed at.
    pub at_most: f64,
    /// Which of the project's aims it is.
    pub rank: Rank,
}

impl Aim {
    /// The subject with its quantile.
    pub fn label(&self) -> String {
        match self.quantile {
            Some(quantile) => format!("{}, {}", self.subject, quantile.name()),
            None => self.subject.clone(),
        }
    }
}

/// Which of the project's aims it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rank {
    /// To be reached early.
    First,
    /// To be reached in the end.
    Final,
}

impl Rank {
    /// As the table has it.
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
    /// What the zygote has loaded.
    pub preload: &'static [&'static str],
    /// Each phase and its median.
    pub medians: Vec<(&'static str, Duration)>,
}

impl Report {
    /// What everything is compared with, if it was measured.
    pub fn base(&self) -> Option<&Summary> {
        let base = self.series.iter().find(|series| series.name == self.base);
        base.map(|series| &series.summary)
    }

    /// How far the middle half of the base spans, as a share of its median.
    pub fn spread(&self) -> Option<f64> {
        self.base().map(Summary::spread)
    }

    /// What this run says of an aim: of a time, nothing where the machine was too noisy.
    pub fn verdict(&self, aim: &Aim) -> Verdict {
        if aim.quantile.is_some() && self.is_noisy() == Some(true) {
            return Verdict::TooNoisy;
        }
        aim.ratio.verdict(aim.at_most)
    }

    /// Whether the machine did so much else that the ratios say little; unknown without a base.
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

    /// One of everything.
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
    fn a_machine_is_noisy_by_its_base() {
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
        // What was counted is what it is.
        aim.quantile = None;
        assert_eq!(report.verdict(&aim), Verdict::Unclear);
        report.series.clear();
        assert_eq!(report.is_noisy(), None);
    }
}
