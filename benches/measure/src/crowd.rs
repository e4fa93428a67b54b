//! What many live sessions cost.

use std::time::Duration;

use serde::Serialize;

use crate::columns::{columns, head, or_missing};
use crate::samples::Summary;
use crate::table::milliseconds;

/// The costs at one number of live sessions, which are idle except the one that runs a cell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Crowd {
    /// The number of sessions.
    pub sessions: usize,
    /// Proportional set size of one session's worker, bytes: the median over all sessions.
    #[serde(rename = "pss_bytes")]
    pub resident: Option<u64>,
    /// What the kernel charged to one worker's cgroup, bytes: the median over all sessions.
    #[serde(rename = "cgroup_bytes")]
    pub cgroup: Option<u64>,
    /// Growth of the supervisor's process for each session, bytes.
    #[serde(rename = "supervisor_bytes")]
    pub supervisor: Option<u64>,
    /// Proportional set size of the zygote, bytes, shared by all sessions.
    #[serde(rename = "zygote_pss_bytes")]
    pub shared: Option<u64>,
    /// Descriptors of the supervisor for each session.
    pub descriptors: Option<u64>,
    /// Processes for each session.
    pub processes: Option<u64>,
    /// The time of a small cell, in each session in turn.
    pub cell: Option<Summary>,
    /// The time of a small cell, repeated in one session while the others are idle.
    #[serde(rename = "cell_in_one")]
    pub again: Option<Summary>,
}

/// The table, with one line for each number of sessions.
pub fn table(crowds: &[Crowd]) -> String {
    let mut rows = vec![head([
        "live sessions",
        "PSS MB",
        "cgroup MB",
        "supervisor MB",
        "zygote MB",
        "descriptors",
        "processes",
        "cell p50 ms",
        "p99 ms",
        "p99.9 ms",
        "in one p50 ms",
        "n",
    ])];
    rows.extend(crowds.iter().map(row));
    columns(&rows)
}

fn row(crowd: &Crowd) -> Vec<String> {
    let bytes = |bytes: Option<u64>| or_missing(bytes.map(megabytes));
    let count = |count: Option<u64>| or_missing(count.map(|count| count.to_string()));
    let (cell, again) = (crowd.cell.as_ref(), crowd.again.as_ref());
    let time = |time: Option<Duration>| or_missing(time.map(milliseconds));
    let tail = |q| time(cell.and_then(|cell| cell.tail(q)));
    vec![
        crowd.sessions.to_string(),
        bytes(crowd.resident),
        bytes(crowd.cgroup),
        bytes(crowd.supervisor),
        bytes(crowd.shared),
        count(crowd.descriptors),
        count(crowd.processes),
        time(cell.map(Summary::median)),
        tail(0.99),
        tail(0.999),
        time(again.map(Summary::median)),
        or_missing(cell.map(|cell| cell.count().to_string())),
    ]
}

#[allow(clippy::cast_precision_loss)] // three decimals are shown
fn megabytes(bytes: u64) -> String {
    format!("{:.3}", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::examples::report;

    #[test]
    fn what_is_not_known_has_a_dash() {
        let text = table(&report().crowds);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn data_has_bytes_and_microseconds() {
        let value = serde_json::to_value(&report().crowds[0]).expect("it is written");
        assert_eq!(value["pss_bytes"], 1_500_000);
        assert_eq!(value["cgroup_bytes"], serde_json::Value::Null);
        assert_eq!(value["cell"]["p50_us"], 349.0);
        assert_eq!(value["cell"]["p99_9_us"], serde_json::Value::Null);
        assert_eq!(value["cell_in_one"]["p50_us"], 109.0);
    }
}
