//! Draws a report as an SVG bar chart: everything comparable, shortest first, on a logarithmic scale.
//!
//! A logarithmic axis has no zero, so a bar starts at the smallest decade shown, and only its end
//! has a meaning. The whisker extends to the 99th percentile.

use std::io;
use std::ops::Range;
use std::time::Duration;

use plotters::coord::ranged1d::SegmentedCoord;
use plotters::coord::types::RangedCoordusize;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::report::{Kind, Report};
use crate::samples::Summary;

/// The colours of the bars.
const COLOURS: [(Kind, &str, RGBColor); 3] = [
    (Kind::Ours, "Sandfork", RGBColor(0x1a, 0x7f, 0x37)),
    (Kind::Peer, "others' sandboxes", RGBColor(0x9a, 0x67, 0x00)),
    (Kind::Bare, "no sandbox", RGBColor(0x8c, 0x95, 0x9f)),
];
const TEXT: RGBColor = RGBColor(0x1f, 0x23, 0x28);
const MUTED: RGBColor = RGBColor(0x59, 0x63, 0x6e);
const GRID: RGBColor = RGBColor(0xd1, 0xd9, 0xe0);

const WIDTH: u32 = 960;
const ROW: u32 = 24;
/// The height above and below the bars.
const AROUND: u32 = 110;

type Failed = DrawingAreaErrorKind<io::Error>;
type Plot<'a> =
    ChartContext<'a, SVGBackend<'a>, Cartesian2d<LogCoord<f64>, SegmentedCoord<RangedCoordusize>>>;

/// A measured subject; its times are in microseconds.
struct Bar<'a> {
    name: &'a str,
    kind: Kind,
    median: f64,
    /// The end of the whisker.
    end: f64,
    /// The text after the bar.
    note: String,
}

impl Report {
    /// Draws the chart as a standalone SVG file, with a white background for pages of any colour.
    ///
    /// # Errors
    ///
    /// Those of the drawing library; writing to a string cannot fail.
    pub fn chart(&self) -> Result<String, Failed> {
        let bars = self.bars();
        let noise = self.noise().unwrap_or_default().replace('`', "");
        let mut svg = String::new();
        let rows = u32::try_from(bars.len()).unwrap_or(u32::MAX);
        let size = (WIDTH, rows * ROW + AROUND);
        let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        root.fill(&WHITE)?;
        let title = format!("Time, and as a multiple of {}", self.base);
        let subtitle = format!("median, whisker to p99, log scale; noise: {noise}");
        let area = root
            .titled(&title, font(21, TEXT))?
            .titled(&subtitle, font(15, MUTED))?;
        let axis = decades(&bars);
        let places = (0..bars.len().saturating_sub(1)).into_segmented();
        let mut plot = ChartBuilder::on(&area)
            .margin(10)
            .margin_right(130)
            .x_label_area_size(24)
            .y_label_area_size(320)
            .build_cartesian_2d(axis.clone().log_scale(), places)?;
        draw_frame(&mut plot, &bars)?;
        draw_bars(&mut plot, &bars, axis.start)?;
        plot.configure_series_labels()
            .position(SeriesLabelPosition::UpperRight)
            .label_font(font(15, TEXT))
            .draw()?;
        root.present()?;
        drop((plot, area, root));
        Ok(svg)
    }

    /// Returns the bars, the longest first, because the chart is filled from below.
    fn bars(&self) -> Vec<Bar<'_>> {
        let base = self.base().map(Summary::median);
        let compared = self.series.iter().filter(|it| it.kind != Kind::Detail);
        let mut bars: Vec<Bar> = compared
            .map(|series| {
                let median = series.summary.median();
                Bar {
                    name: &series.name,
                    kind: series.kind,
                    median: us(median),
                    end: us(series.summary.tail(0.99).unwrap_or(median)),
                    note: note(median, base),
                }
            })
            .collect();
        bars.sort_by(|one, other| other.median.total_cmp(&one.median));
        bars
    }
}

fn draw_frame(plot: &mut Plot, bars: &[Bar]) -> Result<(), Failed> {
    let name = |place: &SegmentValue<usize>| match place {
        SegmentValue::CenterOf(row) => bars.get(*row).map_or("", |bar| bar.name).to_owned(),
        _ => String::new(),
    };
    let tick = |us: &f64| {
        let (number, unit) = in_unit(*us);
        format!("{number:.0} {unit}")
    };
    plot.configure_mesh()
        .disable_y_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(GRID)
        .label_style(font(15, TEXT))
        .y_labels(bars.len())
        .x_label_formatter(&tick)
        .y_label_formatter(&name)
        .draw()
}

fn draw_bars(plot: &mut Plot, bars: &[Bar], start: f64) -> Result<(), Failed> {
    for (kind, meaning, colour) in COLOURS {
        let mut ours = bars
            .iter()
            .enumerate()
            .filter(|(_, bar)| bar.kind == kind)
            .peekable();
        if ours.peek().is_none() {
            continue;
        }
        let rectangles = ours.map(|(row, bar)| {
            let (from, to) = (SegmentValue::Exact(row), SegmentValue::Exact(row + 1));
            let mut rectangle = Rectangle::new([(start, from), (bar.median, to)], colour.filled());
            rectangle.set_margin(4, 4, 0, 0);
            rectangle
        });
        let legend = move |(x, y)| Rectangle::new([(x, y - 6), (x + 12, y + 6)], colour.filled());
        plot.draw_series(rectangles)?.label(meaning).legend(legend);
    }
    let beside = font(15, TEXT).pos(Pos::new(HPos::Left, VPos::Center));
    for (row, bar) in bars.iter().enumerate() {
        let at = |us| (us, SegmentValue::CenterOf(row));
        let note = Text::new(bar.note.clone(), (6, 0), beside.clone());
        plot.draw_series([PathElement::new([at(bar.median), at(bar.end)], TEXT)])?;
        plot.draw_series([EmptyElement::at(at(bar.end)) + note])?;
    }
    Ok(())
}

fn font(size: u32, colour: RGBColor) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&colour)
}

fn us(time: Duration) -> f64 {
    // A time too short for the clock counts as a nanosecond.
    (time.as_secs_f64() * 1e6).max(1e-3)
}

/// Returns the range of whole decades around all bars, in microseconds.
fn decades(bars: &[Bar]) -> Range<f64> {
    let lows = bars.iter().map(|bar| bar.median.log10());
    let low = lows.fold(6.0, f64::min).floor();
    let highs = bars.iter().map(|bar| bar.end.log10());
    let high = highs.fold(low + 1.0, f64::max).ceil();
    10_f64.powf(low)..10_f64.powf(high)
}

/// Formats a time and its ratio; a ratio below a tenth has two significant digits.
fn note(median: Duration, base: Option<Duration>) -> String {
    let Some(base) = base else {
        return in_digits(median);
    };
    let ratio = median.as_secs_f64() / base.as_secs_f64();
    let decimals = if ratio < 0.1 { 3 } else { 2 };
    format!("{} ({ratio:.decimals$} x)", in_digits(median))
}

/// Formats a time with three digits.
fn in_digits(time: Duration) -> String {
    let (number, unit) = in_unit(us(time));
    let decimals = match number {
        _ if unit == "us" => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{number:.decimals$} {unit}")
}

fn in_unit(us: f64) -> (f64, &'static str) {
    match us {
        ..999.5 => (us, "us"),
        ..999_500.0 => (us / 1e3, "ms"),
        _ => (us / 1e6, "s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples::report;

    #[test]
    fn times_have_three_digits() {
        let in_digits = |us| in_digits(Duration::from_micros(us));
        assert_eq!(in_digits(87), "87 us");
        assert_eq!(in_digits(1_234), "1.23 ms");
        assert_eq!(in_digits(38_552), "38.6 ms");
        assert_eq!(in_digits(311_400), "311 ms");
        assert_eq!(in_digits(1_104_003), "1.10 s");
    }

    #[test]
    fn the_axis_has_whole_decades_around_all_ends() {
        let report = report();
        let bars = report.bars();
        assert_eq!(decades(&bars), 1_000.0..100_000.0);
        assert_eq!(decades(&bars[2..]), 1_000.0..10_000.0);
        assert_eq!(decades(&[]), 1e6..1e7);
    }

    #[test]
    fn shortest_on_top_and_details_are_left_out() {
        let report = report();
        let bars = report.bars();
        let names: Vec<&str> = bars.iter().rev().map(|bar| bar.name).collect();
        assert_eq!(
            names,
            ["fresh sandbox", "python3 -c pass", "bwrap & <python3>"]
        );
        assert_eq!(bars[2].note, "2.90 ms (0.28 x)");
    }

    #[test]
    fn chart_matches_the_snapshot() {
        insta::assert_snapshot!(report().chart().expect("a text can be written"));
    }
}
