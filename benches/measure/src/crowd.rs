//! What many live sessions cost.

use serde_json::{Value, json};

use crate::columns::{columns, head, or_missing};
use crate::json::microseconds;
use crate::samples::Summary;
use crate::table::milliseconds;

/// The costs at one number of live sessions, which are idle except the one that runs a cell.
#[derive(Clone, Debug, Default)]
pub struct Crowd {
    /// The number of sessions.
    pub sessions: usize,
    /// Proportional set size of one session's worker, bytes: the median over all sessions.
    pub resident: Option<u64>,
    /// What the kernel charged to one worker's cgroup, bytes: the median over all sessions.
    pub cgroup: Option<u64>,
    /// Growth of the supervisor's process for each session, bytes.
    pub supervisor: Option<u64>,
    /// Proportional set size of the zygote, bytes, shared by all sessions.
    pub shared: Option<u64>,
    /// Descriptors of the supervisor for each session.
    pub descriptors: Option<u64>,
    /// Processes for each session.
    pub processes: Option<u64>,
    /// The time of a small cell, in each session in turn.
    pub cell: Option<Summary>,
    /// The time of a small cell, repeated in one session while the others are idle.
    pub again: Option<Summary>,
}

const HEAD: [&str; 12] = [
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
];

/// The table, with one line for each number of sessions.
pub fn table(crowds: &[Crowd]) -> String {
    let mut rows = vec![head(HEAD)];
    rows.extend(crowds.iter().map(row));
    columns(&rows)
}

fn row(crowd: &Crowd) -> Vec<String> {
    let bytes = |bytes: Option<u64>| or_missing(bytes.map(megabytes));
    let count = |count: Option<u64>| or_missing(count.map(|count| count.to_string()));
    let tail = |q| {
        let time = crowd.cell.as_ref().and_then(|cell| cell.tail(q));
        or_missing(time.map(milliseconds))
    };
    let cell = crowd.cell.as_ref();
    vec![
        crowd.sessions.to_string(),
        bytes(crowd.resident),
        bytes(crowd.cgroup),
        bytes(crowd.supervisor),
        bytes(crowd.shared),
        count(crowd.descriptors),
        count(crowd.processes),
        or_missing(cell.map(|cell| milliseconds(cell.median()))),
        tail(0.99),
        tail(0.999),
        or_missing(
            crowd
                .again
                .as_ref()
                .map(|again| milliseconds(again.median())),
        ),
        or_missing(cell.map(|cell| cell.count().to_string())),
    ]
}

#[allow(clippy::cast_precision_loss)] // three decimals are shown
fn megabytes(bytes: u64) -> String {
    format!("{:.3}", bytes as f64 / 1e6)
}

/// The costs as JSON.
pub fn json(crowd: &Crowd) -> Value {
    let times = |of: &Option<Summary>| {
        let cell = of.as_ref()?;
        Some(json!({
            "n": cell.count(), "p50_us": microseconds(cell.median()),
            "p99_us": cell.tail(0.99).map(microseconds),
            "p99_9_us": cell.tail(0.999).map(microseconds),
        }))
    };
    json!({
        "sessions": crowd.sessions, "pss_bytes": crowd.resident, "cgroup_bytes": crowd.cgroup,
        "supervisor_bytes": crowd.supervisor, "zygote_pss_bytes": crowd.shared,
        "descriptors": crowd.descriptors, "processes": crowd.processes,
        "cell": times(&crowd.cell), "cell_in_one": times(&crowd.again),
    })
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
        let value = json(&report().crowds[0]);
        assert_eq!(value["pss_bytes"], 1_500_000);
        assert_eq!(value["cgroup_bytes"], Value::Null);
        assert_eq!(value["cell"]["p50_us"], 349.0);
        assert_eq!(value["cell"]["p99_9_us"], Value::Null);
        assert_eq!(value["cell_in_one"]["p50_us"], 109.0);
        assert_eq!(json(&Crowd::default())["cell"], Value::Null);
    }
}
