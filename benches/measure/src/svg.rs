//! A chart as a picture in SVG: horizontal bars on a logarithmic scale.
//!
//! A logarithmic axis has no zero, so a bar starts at the smallest decade shown, and only its end
//! has a meaning. The whisker extends to the 99th percentile.

use std::fmt::Write;
use std::time::Duration;

use crate::chart::{Bar, Chart};
use crate::report::Kind;

const WIDTH: f64 = 960.0;
const LABELS: f64 = 330.0;
const NOTES: f64 = 130.0;
const TOP: f64 = 74.0;
const ROW: f64 = 24.0;
const BAR: f64 = 16.0;
const BOTTOM: f64 = 34.0;

/// Whole decades around the times of a chart, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Axis {
    low: i32,
    high: i32,
}

impl Axis {
    #[allow(clippy::cast_possible_truncation)] // logarithms of times
    fn around(bars: &[Bar]) -> Self {
        let ends = bars.iter().flat_map(|bar| [Some(bar.median), bar.tail]);
        let decades = ends.flatten().map(decade);
        let low = decades.clone().fold(f64::INFINITY, f64::min);
        let high = decades.fold(f64::NEG_INFINITY, f64::max);
        if low > high {
            return Self { low: 0, high: 1 };
        }
        let low = low.floor() as i32;
        Self {
            low,
            high: (high.ceil() as i32).max(low + 1),
        }
    }

    fn x(self, time: Duration) -> f64 {
        self.x_of(decade(time))
    }

    fn x_of(self, decade: f64) -> f64 {
        let share = (decade - f64::from(self.low)) / f64::from(self.high - self.low);
        LABELS + share * (WIDTH - LABELS - NOTES)
    }
}

fn decade(time: Duration) -> f64 {
    // A time too short for the clock counts as a nanosecond.
    (time.as_secs_f64() * 1e6).max(1e-3).log10()
}

impl Chart {
    /// The picture as a standalone file, without external resources.
    pub fn svg(&self) -> String {
        let mut svg = String::new();
        // Writing to a string does not fail.
        _ = self.draw(&mut svg);
        svg
    }

    #[allow(clippy::cast_precision_loss)] // a number of bars
    fn draw(&self, svg: &mut String) -> std::fmt::Result {
        let axis = Axis::around(&self.bars);
        let bottom = TOP + ROW * self.bars.len() as f64;
        let height = bottom + BOTTOM;
        writeln!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
             width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"12\">"
        )?;
        writeln!(svg, "<title>{}</title>", escaped(&self.title))?;
        writeln!(
            svg,
            "<rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>"
        )?;
        text(
            svg,
            (16.0, 26.0),
            "font-size=\"17\" fill=\"#1f2328\"",
            &self.title,
        )?;
        text(svg, (16.0, 46.0), "fill=\"#59636e\"", &self.subtitle)?;
        self.draw_legend(svg)?;
        for decade in axis.low..=axis.high {
            let x = axis.x_of(f64::from(decade));
            writeln!(
                svg,
                "<line x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.1}\" y2=\"{bottom:.1}\" stroke=\"#d1d9e0\"/>",
                TOP - 8.0
            )?;
            let tick = tick(decade);
            text(
                svg,
                (x, bottom + 18.0),
                "text-anchor=\"middle\" fill=\"#59636e\"",
                &tick,
            )?;
        }
        for (row, bar) in self.bars.iter().enumerate() {
            bar.draw(svg, axis, TOP + ROW * row as f64)?;
        }
        writeln!(svg, "</svg>")
    }
}

/// The meanings of the bars' colours.
const LEGEND: [(Kind, &str); 3] = [
    (Kind::Ours, "Sandfork"),
    (Kind::Peer, "others' sandboxes"),
    (Kind::Bare, "no sandbox"),
];

impl Chart {
    fn draw_legend(&self, svg: &mut String) -> std::fmt::Result {
        let mut x = WIDTH - 330.0;
        for (kind, words) in LEGEND {
            if !self.bars.iter().any(|bar| bar.kind == kind) {
                continue;
            }
            let colour = colour(kind);
            writeln!(
                svg,
                "<rect x=\"{x}\" y=\"16\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{colour}\"/>"
            )?;
            text(svg, (x + 17.0, 26.0), "fill=\"#1f2328\"", words)?;
            x += 110.0;
        }
        Ok(())
    }
}

impl Bar {
    fn draw(&self, svg: &mut String, axis: Axis, top: f64) -> std::fmt::Result {
        let (x, middle) = (axis.x(self.median), top + BAR / 2.0);
        let base = middle + 4.0;
        let right = "text-anchor=\"end\" fill=\"#1f2328\"";
        text(svg, (LABELS - 8.0, base), right, &self.label)?;
        writeln!(
            svg,
            "<rect x=\"{LABELS}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\" fill=\"{}\"/>",
            (x - LABELS).max(1.0),
            colour(self.kind)
        )?;
        let end = self.tail.map_or(x, |tail| axis.x(tail));
        if self.tail.is_some() {
            writeln!(
                svg,
                "<path d=\"M{x:.1} {middle:.1}H{end:.1}m0 -4v8\" fill=\"none\" stroke=\"#1f2328\"/>"
            )?;
        }
        text(
            svg,
            (end.max(x) + 6.0, base),
            "fill=\"#1f2328\"",
            &self.note,
        )
    }
}

fn colour(kind: Kind) -> &'static str {
    match kind {
        Kind::Ours | Kind::Detail => "#1a7f37",
        Kind::Peer => "#9a6700",
        Kind::Bare => "#8c959f",
    }
}

/// `100 us`, `1 ms`, `10 s`.
fn tick(decade: i32) -> String {
    let (power, unit) = match decade {
        ..0 => (decade + 3, "ns"),
        0..3 => (decade, "us"),
        3..6 => (decade - 3, "ms"),
        6.. => (decade - 6, "s"),
    };
    format!("{:.0} {unit}", 10_f64.powi(power))
}

fn text(svg: &mut String, at: (f64, f64), style: &str, words: &str) -> std::fmt::Result {
    let (x, y) = at;
    writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" {style}>{}</text>",
        escaped(words)
    )
}

fn escaped(words: &str) -> String {
    words
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples::report;

    fn bar(us: u64, tail_us: Option<u64>) -> Bar {
        Bar {
            label: "a".to_owned(),
            note: "b".to_owned(),
            kind: Kind::Ours,
            median: Duration::from_micros(us),
            tail: tail_us.map(Duration::from_micros),
        }
    }

    #[test]
    fn the_axis_has_whole_decades_around_all_ends() {
        let around = |bars: &[Bar]| {
            let axis = Axis::around(bars);
            (axis.low, axis.high)
        };
        assert_eq!(around(&[bar(150, None), bar(20_000, None)]), (2, 5));
        assert_eq!(around(&[bar(150, Some(20_000))]), (2, 5));
        assert_eq!(around(&[bar(1_000, None)]), (3, 4));
        assert_eq!(around(&[]), (0, 1));
    }

    #[test]
    fn ten_times_as_long_is_one_step_further() {
        let axis = Axis { low: 2, high: 5 };
        let x = |us| axis.x(Duration::from_micros(us));
        assert!((x(100) - LABELS).abs() < 1e-6);
        assert!(((x(1_000) - x(100)) - (x(10_000) - x(1_000))).abs() < 1e-6);
        assert!((x(100_000) - (WIDTH - NOTES)).abs() < 1e-6);
    }

    #[test]
    fn ticks_have_the_unit_of_their_size() {
        let ticks: Vec<String> = (-1..7).map(tick).collect();
        assert_eq!(
            ticks,
            [
                "100 ns", "1 us", "10 us", "100 us", "1 ms", "10 ms", "100 ms", "1 s"
            ]
        );
    }

    #[test]
    fn the_picture_is_what_it_was() {
        insta::assert_snapshot!("chart", report().chart().svg());
    }
}
