//! The costs of many live sessions.

use serde::Serialize;

use crate::columns::{self, Column};
use crate::samples::Summary;
use crate::table::milliseconds;

/// The costs at one number of live sessions, which are idle except the one that runs a cell.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Crowd {
    /// The number of sessions.
    pub sessions: usize,
    /// Proportional set size of one session's worker in bytes: the median over all sessions.
    #[serde(rename = "pss_bytes")]
    pub resident: Option<u64>,
    /// What the kernel charged to one worker's cgroup in bytes: the median over all sessions.
    #[serde(rename = "cgroup_bytes")]
    pub cgroup: Option<u64>,
    /// Growth of the supervisor's process for each session in bytes.
    #[serde(rename = "supervisor_bytes")]
    pub supervisor: Option<u64>,
    /// Proportional set size of the zygote in bytes, shared by all sessions.
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

/// Formats the table, with one line for each number of sessions.
pub fn table(crowds: &[Crowd]) -> String {
    let count = |count: Option<u64>| count.map(|count| count.to_string());
    let tail = |crowd: &Crowd, q| crowd.cell.as_ref()?.tail(q).map(milliseconds);
    let median = |cell: &Option<Summary>| cell.as_ref().map(|cell| milliseconds(cell.median()));
    let columns: &[Column<Crowd>] = &[
        ("live sessions", &|it| Some(it.sessions.to_string())),
        ("PSS MB", &|it| it.resident.map(megabytes)),
        ("cgroup MB", &|it| it.cgroup.map(megabytes)),
        ("supervisor MB", &|it| it.supervisor.map(megabytes)),
        ("zygote MB", &|it| it.shared.map(megabytes)),
        ("descriptors", &|it| count(it.descriptors)),
        ("processes", &|it| count(it.processes)),
        ("cell p50 ms", &|it| median(&it.cell)),
        ("p99 ms", &|it| tail(it, 0.99)),
        ("p99.9 ms", &|it| tail(it, 0.999)),
        ("in one p50 ms", &|it| median(&it.again)),
        ("n", &|it| {
            it.cell.as_ref().map(|cell| cell.count().to_string())
        }),
    ];
    columns::table(crowds, columns)
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
    fn unknown_values_have_a_dash() {
        let text = table(&report().crowds);
        insta::assert_snapshot!(text);
    }

    #[test]
    fn data_has_bytes_and_microseconds() {
        let value = serde_json::to_value(&report().crowds[0]).expect("serialization succeeds");
        assert_eq!(value["pss_bytes"], 1_500_000);
        assert_eq!(value["cgroup_bytes"], serde_json::Value::Null);
        assert_eq!(value["cell"]["p50_us"], 349.0);
        assert_eq!(value["cell"]["p99_9_us"], serde_json::Value::Null);
        assert_eq!(value["cell_in_one"]["p50_us"], 109.0);
    }
}
