//! Statistics of a tenant's recent runs, for the web page and `/v1/activity`.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sandfork::Outcome;
use serde_json::{Value, json};

/// The number of runs from which latencies are computed.
const TIMES: usize = 1000;
/// The number of failures that are kept, and of denials in each of them.
const FAILURES: usize = 20;
const DENIALS: usize = 3;
/// The maximum number of characters of a text that a guest chose.
const MAX_TEXT: usize = 300;

/// Statistics of the runs and cells of a tenant.
#[derive(Debug, Default)]
pub struct Activity {
    ended: BTreeMap<&'static str, u64>,
    times: VecDeque<Duration>,
    failures: VecDeque<Value>,
}

impl Activity {
    /// Records a run or a cell that has ended.
    pub fn ended(&mut self, outcome: &Outcome) {
        *self.ended.entry(outcome.status().as_str()).or_default() += 1;
        push(&mut self.times, TIMES, outcome.usage().wall);
        if !outcome.is_ok() {
            push(&mut self.failures, FAILURES, failure(outcome));
        }
    }

    /// Returns the statistics as JSON.
    pub fn described(&self) -> Value {
        let mut times: Vec<_> = self.times.iter().copied().collect();
        times.sort_unstable();
        let percentile = |percent: usize| {
            let time = times.get(times.len().saturating_sub(1) * percent / 100);
            time.map(|time| time.as_secs_f64() * 1000.0)
        };
        json!({
            "ended": self.ended,
            "wall_ms": { "p50": percentile(50), "p99": percentile(99), "of": times.len() },
            "failures": self.failures,
        })
    }
}

fn push<T>(kept: &mut VecDeque<T>, limit: usize, new: T) {
    if kept.len() == limit {
        kept.pop_front();
    }
    kept.push_back(new);
}

fn failure(outcome: &Outcome) -> Value {
    let at = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let error = outcome.error();
    let error = error.map(|error| short(&format!("{}: {}", error.name, error.message)));
    let denied = outcome.denied().iter().take(DENIALS).map(|denial| {
        json!({
            "operation": short(&denial.operation),
            "target": denial.target.as_deref().map(short),
            "layer": denial.layer,
            "set": denial.set.as_deref().map(short),
        })
    });
    json!({
        "at": at.as_secs(),
        "status": outcome.status().as_str(),
        "error": error,
        "denied": denied.collect::<Vec<_>>(),
    })
}

fn short(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_of_no_runs_are_null() {
        let described = Activity::default().described();
        assert_eq!(
            described["wall_ms"],
            json!({ "p50": null, "p99": null, "of": 0 })
        );
    }

    #[test]
    fn percentiles_cover_the_latest_runs() {
        let mut activity = Activity::default();
        for ms in 0..1200 {
            push(&mut activity.times, TIMES, Duration::from_millis(ms));
        }
        let described = activity.described();
        assert_eq!(described["wall_ms"]["of"], 1000);
        assert_eq!(described["wall_ms"]["p50"], 699.0);
        assert_eq!(described["wall_ms"]["p99"], 1189.0);
    }

    #[test]
    fn guest_text_is_truncated() {
        assert_eq!(short(&"é".repeat(1000)).chars().count(), MAX_TEXT);
    }
}
