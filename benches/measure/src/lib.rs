//! Evaluates the times of a benchmark: quantiles, ratios, and a report as table, JSON or chart.
//!
//! The crate is pure: a benchmark measures, fills a [`Report`], and writes the rendered result.

mod chart;
mod columns;
mod crowd;
mod overhead;
mod ratio;
mod report;
mod samples;
mod table;

pub use crowd::Crowd;
pub use overhead::{Overhead, Programs};
pub use ratio::{Quantile, Ratio, Verdict};
pub use report::{Aim, Kind, Phases, QUIET_SPREAD, Rank, Report, Series};
pub use samples::{Interval, Samples, Summary};
