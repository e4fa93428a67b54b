//! Formats a report as text.

use std::fmt::Write;
use std::time::Duration;

use crate::columns;
use crate::report::{Phases, QUIET_SPREAD, Report, Series};
use crate::samples::Summary;
use crate::{crowd, overhead};

/// The column where the head's texts start.
const INDENT: usize = 13;

impl Report {
    /// Formats the table: ratios first.
    pub fn table(&self) -> String {
        let mut parts = vec![self.head_text()];
        if !self.aims.is_empty() {
            parts.push(self.ratios());
        }
        if !self.series.is_empty() {
            parts.push(self.times());
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

    /// Returns a sentence on whether the machine was quiet enough.
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

    fn ratios(&self) -> String {
        columns::table(
            &self.aims,
            &[
                ("", &|aim| Some(aim.label())),
                ("ratio", &|aim| Some(format!("{:.3}", aim.ratio.value))),
                ("of", &|aim| Some(aim.base.clone())),
                ("aim", &|aim| Some(format!("<= {}", aim.at_most))),
                ("", &|aim| Some(aim.rank.name().to_owned())),
                ("", &|aim| Some(self.verdict(aim).name().to_owned())),
            ],
        )
    }

    fn times(&self) -> String {
        let base = self.base().map(Summary::median);
        let ratio = |it: &Series| {
            let ratio = it.summary.median().as_secs_f64() / base?.as_secs_f64();
            Some(format!("{ratio:.3}"))
        };
        let tail = |it: &Series, q| it.summary.tail(q).map(milliseconds);
        columns::table(
            &self.series,
            &[
                ("", &|it| Some(it.name.clone())),
                (&format!("p50 / {}", self.base), &ratio),
                ("p50 ms", &|it| Some(milliseconds(it.summary.median()))),
                ("p99 ms", &|it| tail(it, 0.99)),
                ("p99.9 ms", &|it| tail(it, 0.999)),
                ("n", &|it| Some(it.summary.count().to_string())),
            ],
        )
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

/// Formats milliseconds with three decimals.
pub fn milliseconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples::report;

    #[test]
    fn report_as_text() {
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
