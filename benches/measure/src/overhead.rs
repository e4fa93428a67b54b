//! Compares the same programs inside and outside a sandbox.

use std::time::Duration;

use serde_json::{Value, json};

use crate::columns;
use crate::ratio::Ratio;
use crate::samples::{Samples, microseconds};
use crate::table::milliseconds;

/// Programs that were run inside and outside.
#[derive(Clone, Debug, Default)]
pub struct Programs {
    /// The source of the programs.
    pub set: String,
    /// The measurements of each program.
    pub each: Vec<Overhead>,
}

/// One program.
#[derive(Clone, Debug)]
pub struct Overhead {
    /// Its name.
    pub program: String,
    /// Whether it only computes, with few system calls.
    pub is_cpu_bound: bool,
    /// Times inside and outside, taken one right after the other, in alternating order.
    pub pairs: Vec<(Duration, Duration)>,
}

impl Overhead {
    /// Returns inside time as a multiple of outside time, if measured.
    pub fn ratio(&self) -> Option<Ratio> {
        Ratio::of_pairs(&self.pairs)
    }

    fn median(&self, of: fn(&(Duration, Duration)) -> Duration) -> Option<Duration> {
        let times: Samples = self.pairs.iter().map(of).collect();
        Some(times.summary()?.median())
    }
}

impl Programs {
    /// Returns the ratio over all programs that only compute, each pair with equal weight.
    pub fn cpu_bound(&self) -> Option<Ratio> {
        let cpu_bound = self.each.iter().filter(|program| program.is_cpu_bound);
        let pairs: Vec<_> = cpu_bound
            .flat_map(|program| program.pairs.clone())
            .collect();
        Ratio::of_pairs(&pairs)
    }
}

/// Formats the table: one line for each program, and one for all that compute.
pub fn table(programs: &Programs) -> String {
    // Name, ratio, and the program, unless the line is the total.
    let each = programs.each.iter();
    let each = each.filter_map(|it| Some((it.program.as_str(), it.ratio()?, Some(it))));
    let all = programs
        .cpu_bound()
        .map(|ratio| ("all that only compute", ratio, None));
    let rows: Vec<(&str, Ratio, Option<&Overhead>)> = each.chain(all).collect();
    let number = |number: f64| Some(format!("{number:.3}"));
    columns::table(
        &rows,
        &[
            ("inside / outside", &|it| Some(it.0.to_owned())),
            ("ratio", &|it| number(it.1.value)),
            ("low", &|it| number(it.1.low)),
            ("high", &|it| number(it.1.high)),
            ("inside ms", &|it| {
                Some(milliseconds(it.2?.median(|pair| pair.0)?))
            }),
            ("outside ms", &|it| {
                Some(milliseconds(it.2?.median(|pair| pair.1)?))
            }),
            ("n", &|it| Some(it.2?.pairs.len().to_string())),
        ],
    )
}

/// Returns the measurements as JSON.
pub fn json(programs: &Programs) -> Value {
    let each = programs.each.iter().filter_map(|program| {
        let ratio = program.ratio()?;
        Some(json!({
            "program": program.program, "cpu_bound": program.is_cpu_bound, "ratio": ratio.value,
            "low": ratio.low, "high": ratio.high, "n": program.pairs.len(),
            "inside_p50_us": program.median(|pair| pair.0).map(microseconds),
            "outside_p50_us": program.median(|pair| pair.1).map(microseconds),
        }))
    });
    json!({
        "set": programs.set, "each": each.collect::<Vec<_>>(),
        "cpu_bound_ratio": programs.cpu_bound().map(|ratio| ratio.value),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples::report;

    #[test]
    fn each_program_and_the_cpu_bound_total() {
        let mut programs = report().programs;
        programs.each.push(Overhead {
            program: "system calls".to_owned(),
            is_cpu_bound: false,
            pairs: vec![(Duration::from_millis(30), Duration::from_millis(10)); 5],
        });
        insta::assert_snapshot!(table(&programs));
    }

    #[test]
    fn unmeasured_program_has_no_line() {
        let programs = Programs {
            set: "ours".to_owned(),
            each: vec![Overhead {
                program: "nbody".to_owned(),
                is_cpu_bound: true,
                pairs: Vec::new(),
            }],
        };
        assert_eq!(table(&programs).lines().count(), 1);
        assert_eq!(json(&programs)["each"], json!([]));
        assert_eq!(json(&programs)["cpu_bound_ratio"], Value::Null);
    }
}
