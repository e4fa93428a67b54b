//! A report as JSON.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::report::{Aim, Phases, QUIET_SPREAD, Report, Series};
use crate::{crowd, overhead};

impl Report {
    /// The whole report for programs, with times in microseconds.
    pub fn json(&self) -> Value {
        json!({
            "facts": self.facts,
            "base": self.base,
            "noise": {
                "spread": self.spread(), "quiet_spread": QUIET_SPREAD, "noisy": self.is_noisy(),
            },
            "aims": self.aims.iter().map(|it| aim(self, it)).collect::<Vec<_>>(),
            "series": self.series.iter().map(series).collect::<Vec<_>>(),
            "phases": self.phases.iter().map(phases).collect::<Vec<_>>(),
            "live_sessions": self.crowds.iter().map(crowd::json).collect::<Vec<_>>(),
            "inside_outside": overhead::json(&self.programs),
            "left_out": self.left_out,
        })
    }
}

fn aim(report: &Report, aim: &Aim) -> Value {
    json!({
        "subject": aim.subject, "quantile": aim.quantile.map(crate::Quantile::name),
        "of": aim.base, "ratio": aim.ratio.value, "low": aim.ratio.low, "high": aim.ratio.high,
        "at_most": aim.at_most, "aim": aim.rank.name(),
        "verdict": report.verdict(aim).name(),
    })
}

fn series(series: &Series) -> Value {
    let summary = &series.summary;
    let us = |q| microseconds(summary.quantile(q));
    let tail = |q| summary.tail(q).map(microseconds);
    json!({
        "subject": series.name, "kind": series.kind.name(), "n": summary.count(),
        "min_us": us(0.0), "p25_us": us(0.25), "p50_us": us(0.5), "p75_us": us(0.75),
        "p99_us": tail(0.99), "p99_9_us": tail(0.999), "max_us": us(1.0),
    })
}

fn phases(phases: &Phases) -> Value {
    let medians = phases.medians.iter();
    let medians: Map<String, Value> = medians
        .map(|(name, time)| ((*name).to_owned(), json!(microseconds(*time))))
        .collect();
    json!({"preload": phases.preload, "p50_us": medians})
}

/// Rounded to a tenth, which is finer than the clocks measure.
pub fn microseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples::report;

    #[test]
    fn times_are_microseconds() {
        assert!((microseconds(Duration::from_nanos(1_234_567)) - 1_234.6).abs() < 1e-9);
    }

    #[test]
    fn a_report_has_all_of_its_parts() {
        let json = report().json();
        assert_eq!(json["facts"]["processors"], 2);
        assert_eq!(json["noise"]["noisy"], false);
        assert_eq!(json["aims"][0]["verdict"], "too close to tell");
        assert_eq!(json["aims"][0]["quantile"], "p50");
        assert_eq!(json["phases"][0]["p50_us"]["fork"], 552.0);
        assert_eq!(json["live_sessions"][0]["sessions"], 1_000);
        assert_eq!(json["inside_outside"]["each"][0]["program"], "nbody");
        assert_eq!(json["left_out"][0], "firejail: not installed");
    }

    #[test]
    fn a_tail_that_means_nothing_is_null() {
        let json = report().json();
        assert_eq!(json["series"][0]["p99_9_us"], 4_895.0);
        assert_eq!(json["series"][1]["p99_us"], Value::Null);
        assert_eq!(json["series"][1]["max_us"], 830.0);
        assert_eq!(json["series"][3]["kind"], "peer");
    }
}
