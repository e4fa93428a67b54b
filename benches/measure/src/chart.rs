//! A report as a chart: everything comparable, shortest first. `svg.rs` draws it.

use std::time::Duration;

use crate::report::{Kind, Report};
use crate::samples::Summary;

/// Bars, from the shortest to the longest.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The title above the chart.
    pub title: String,
    /// The line below the title.
    pub subtitle: String,
    /// One bar for each measured thing.
    pub bars: Vec<Bar>,
}

/// One measured thing.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Its name.
    pub label: String,
    /// The text after the bar.
    pub note: String,
    /// The kind that decides the bar's colour.
    pub kind: Kind,
    /// Its length.
    pub median: Duration,
    /// Where its whisker ends.
    pub tail: Option<Duration>,
}

impl Report {
    /// The chart of everything comparable, shortest first.
    pub fn chart(&self) -> Chart {
        let base = self.base().map(Summary::median);
        let compared = self.series.iter().filter(|it| it.kind != Kind::Detail);
        let mut bars: Vec<Bar> = compared
            .map(|series| {
                let median = series.summary.median();
                let ratio = base.map(|base| median.as_secs_f64() / base.as_secs_f64());
                let ratio = ratio.map(|ratio| format!(" ({})", multiple(ratio)));
                Bar {
                    label: series.name.clone(),
                    note: format!("{}{}", spoken(median), ratio.unwrap_or_default()),
                    kind: series.kind,
                    median,
                    tail: series.summary.tail(0.99),
                }
            })
            .collect();
        bars.sort_by_key(|bar| bar.median);
        let noise = self.noise().unwrap_or_default();
        let noise = noise.replace('`', "");
        Chart {
            title: format!("Time, and as a multiple of {}", self.base),
            subtitle: format!("median, whisker to p99, log scale; noise: {noise}"),
            bars,
        }
    }
}

/// A time in as few digits as distinguish it.
fn spoken(time: Duration) -> String {
    let us = time.as_secs_f64() * 1e6;
    if us < 999.5 {
        format!("{us:.0} us")
    } else if us < 9_995.0 {
        format!("{:.2} ms", us / 1e3)
    } else if us < 99_950.0 {
        format!("{:.1} ms", us / 1e3)
    } else if us < 999_500.0 {
        format!("{:.0} ms", us / 1e3)
    } else {
        format!("{:.2} s", us / 1e6)
    }
}

/// A ratio. Below a tenth the third decimal is the second significant digit.
fn multiple(ratio: f64) -> String {
    let decimals = if ratio < 0.1 { 3 } else { 2 };
    format!("{ratio:.decimals$} x")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples::report;

    #[test]
    fn times_are_spoken_with_three_digits() {
        let spoken = |us| spoken(Duration::from_micros(us));
        assert_eq!(spoken(87), "87 us");
        assert_eq!(spoken(1_234), "1.23 ms");
        assert_eq!(spoken(38_552), "38.6 ms");
        assert_eq!(spoken(311_400), "311 ms");
        assert_eq!(spoken(1_104_003), "1.10 s");
        assert_eq!(multiple(0.0073), "0.007 x");
        assert_eq!(multiple(1.5), "1.50 x");
    }

    #[test]
    fn shortest_first_and_details_are_left_out() {
        let chart = report().chart();
        let labels: Vec<&str> = chart.bars.iter().map(|bar| bar.label.as_str()).collect();
        assert_eq!(
            labels,
            ["fresh sandbox", "python3 -c pass", "bwrap & <python3>"]
        );
        assert_eq!(chart.bars[0].note, "2.90 ms (0.28 x)");
    }
}
