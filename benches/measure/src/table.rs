//! A report as text, for a person.

use std::fmt::Write;
use std::time::Duration;

use crate::columns::{columns, head, or_missing};
use crate::report::{Phases, QUIET_SPREAD, Report};
use crate::samples::Summary;
use crate::{crowd, overhead};

/// The column where the head's texts start.
const INDENT: usize = 13;

impl Report {
    /// The table: ratios first.
    pub fn table(&self) -> String {
        let mut parts = vec![self.head_text()];
        if !self.aims.is_empty() {
            parts.push(columns(&self.ratios()));
        }
        if !self.series.is_empty() {
            parts.push(columns(&self.times()));
        }
        if !self.crowds.is_empty() {
            parts.push(crowd::table(&self.crowds));
        }
        if !self.programs.each.is_empty() {
            parts.push(overhead::table(&self.programs));
        }
        let phases: String = self.phases.iter().map(phases).collect();
        let left_out = self.left_out.iter().map(|why| format!("left out: {why}\n"));
        parts.push(phases);
        parts.push(left_out.collect());
        parts.retain(|part| !part.is_empty());
        parts.join("\n")
    }

    fn head_text(&self) -> String {
        let mut text = String::new();
        let noise = self.noise();
        let lines = self.head.iter().map(|(name, line)| (*name, line.as_str()));
        for (name, line) in lines.chain(noise.as_deref().map(|line| ("noise", line))) {
            // Writing to a string does not fail.
            _ = writeln!(text, "{name:<INDENT$}{line}");
        }
        text
    }

    /// A sentence on whether the machine was quiet enough.
    pub fn noise(&self) -> Option<String> {
        let percent = self.spread()? * 100.0;
        let base = &self.base;
        Some(if percent <= QUIET_SPREAD * 100.0 {
            format!("the middle half of `{base}` lies within {percent:.0} % of its median")
        } else {
            format!(
                "TOO MUCH TO TELL: the middle half of `{base}` spans {percent:.0} % of its median; run it \
                 on a quiet machine"
            )
        })
    }

    fn ratios(&self) -> Vec<Vec<String>> {
        let mut rows = vec![head(["", "ratio", "of", "aim", "", ""])];
        for aim in &self.aims {
            rows.push(vec![
                aim.label(),
                format!("{:.3}", aim.ratio.value),
                aim.base.clone(),
                format!("<= {}", aim.at_most),
                aim.rank.name().to_owned(),
                self.verdict(aim).name().to_owned(),
            ]);
        }
        rows
    }

    fn times(&self) -> Vec<Vec<String>> {
        let ratio_head = format!("p50 / {}", self.base);
        let mut rows = vec![head(["", &ratio_head, "p50 ms", "p99 ms", "p99.9 ms", "n"])];
        let base = self.base().map(Summary::median);
        for series in &self.series {
            let summary = &series.summary;
            let median = summary.median();
            let ratio = base.map(|base| median.as_secs_f64() / base.as_secs_f64());
            let tail = |q| or_missing(summary.tail(q).map(milliseconds));
            rows.push(vec![
                series.name.clone(),
                or_missing(ratio.map(|ratio| format!("{ratio:.3}"))),
                milliseconds(median),
                tail(0.99),
                tail(0.999),
                summary.count().to_string(),
            ]);
        }
        rows
    }
}

fn phases(phases: &Phases) -> String {
    let zygote = if phases.preload.is_empty() {
        "bare".to_owned()
    } else {
        phases.preload.join(", ")
    };
    let each = phases.medians.iter();
    let each: Vec<String> = each
        .map(|(name, time)| format!("{name} {}", time.as_micros()))
        .collect();
    format!("phases, median us ({zygote}):  {}\n", each.join("  "))
}

/// Three decimals, down to a microsecond.
pub fn milliseconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples::report;

    #[test]
    fn a_report_for_a_person() {
        insta::assert_snapshot!(report().table());
    }

    #[test]
    fn a_noisy_machine_is_named() {
        let mut report = report();
        report.base = "16 in flight".to_owned();
        assert!(!report.noise().expect("measured").contains("TOO MUCH"));
        report.base = "fresh sandbox".to_owned();
        let noise = report.noise().expect("measured");
        assert!(noise.starts_with("TOO MUCH TO TELL"), "{noise}");
        report.base = "nobody".to_owned();
        assert_eq!(report.noise(), None);
    }

    #[test]
    fn a_part_that_was_not_run_has_no_heading() {
        let report = Report {
            left_out: vec!["everything".to_owned()],
            ..Report::default()
        };
        assert_eq!(report.table(), "left out: everything\n");
    }
}
