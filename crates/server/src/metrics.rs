//! Metrics in the text format of Prometheus.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry, Unit};
use sandfork::Outcome;

/// A label: its name and value.
type Label = (&'static str, Arc<str>);

/// The metrics of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    runs: Family<[Label; 2], Counter>,
    phases: Family<[Label; 1], Histogram>,
    cpu: Family<[Label; 1], Counter<f64, AtomicU64>>,
    answers: Family<[Label; 2], Counter>,
    refusals: Family<[Label; 2], Counter>,
    times: Family<[Label; 1], Histogram>,
    /// The number of open sessions.
    pub sessions: Gauge,
    /// The number of open connections.
    pub connections: Gauge,
}

/// Creates a histogram with buckets from one millisecond, the time of a fresh sandbox, to two minutes.
fn histogram() -> Histogram {
    const BOUNDS: [f64; 14] = [
        0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0,
    ];
    Histogram::new(BOUNDS)
}

/// Registers a metric.
fn register<M: Metric + Clone>(to: &mut Registry, name: &str, about: &str, count: M) -> M {
    to.register(name, about, count.clone());
    count
}

/// Registers a metric in seconds.
fn register_seconds<M: Metric + Clone>(to: &mut Registry, name: &str, about: &str, count: M) -> M {
    to.register_with_unit(name, about, Unit::Seconds, count.clone());
    count
}

impl Metrics {
    /// Creates the metrics.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("sandfork");
        let all = &mut registry;
        let times = || Family::new_with_constructor(histogram as fn() -> Histogram);
        let of_phases = "The time of each phase of a run, as in `usage.phases` of its outcome";
        Self {
            runs: register(
                all,
                "runs",
                "Runs and cells that ended, by status",
                Family::default(),
            ),
            phases: register_seconds(all, "phase", of_phases, times()),
            cpu: register_seconds(all, "cpu", "CPU time of guests", Family::default()),
            answers: register(all, "answers", "HTTP responses", Family::default()),
            times: register_seconds(all, "answer", "The time until a response", times()),
            refusals: register(all, "refusals", "Requests that failed", Family::default()),
            sessions: register(all, "sessions", "Open sessions", Gauge::default()),
            connections: register(all, "connections", "Open connections", Gauge::default()),
            registry,
        }
    }

    /// Records a run or a cell that has ended.
    pub fn ended(&self, tenant: &Arc<str>, outcome: &Outcome) {
        let usage = outcome.usage();
        let status = outcome.status().as_str().into();
        let of_run = [("tenant", Arc::clone(tenant)), ("status", status)];
        self.runs.get_or_create(&of_run).inc();
        self.used(tenant, usage.cpu);
        for (phase, time) in usage.phases.each() {
            let of_phase = self.phases.get_or_create(&[("phase", phase.into())]);
            of_phase.observe(time.as_secs_f64());
        }
    }

    /// Records CPU time of a tenant's guests.
    pub fn used(&self, tenant: &Arc<str>, time: Duration) {
        let cpu = self.cpu.get_or_create(&[("tenant", Arc::clone(tenant))]);
        cpu.inc_by(time.as_secs_f64());
    }

    /// Records a response.
    pub fn answered(&self, route: &Arc<str>, code: u16, time: Duration) {
        let route = ("route", Arc::clone(route));
        let times = self.times.get_or_create(std::array::from_ref(&route));
        times.observe(time.as_secs_f64());
        let code = ("code", code.to_string().into());
        self.answers.get_or_create(&[route, code]).inc();
    }

    /// Records a failed request.
    pub fn refused(&self, tenant: &Arc<str>, kind: &'static str) {
        let of_tenant = [("tenant", Arc::clone(tenant)), ("kind", kind.into())];
        self.refusals.get_or_create(&of_tenant).inc();
    }

    /// Encodes all metrics.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_have_their_labels() {
        let metrics = Metrics::new();
        metrics.refused(&"a".into(), "quota");
        metrics.used(&"a".into(), Duration::from_millis(1500));
        metrics.answered(&"/v1/runs".into(), 429, Duration::from_millis(3));
        let text = metrics.text();
        for line in [
            r#"sandfork_refusals_total{tenant="a",kind="quota"} 1"#,
            r#"sandfork_cpu_seconds_total{tenant="a"} 1.5"#,
            r#"sandfork_answers_total{route="/v1/runs",code="429"} 1"#,
            r#"sandfork_answer_seconds_bucket{le="0.005",route="/v1/runs"} 1"#,
        ] {
            assert!(text.lines().any(|other| other == line), "{line}: {text}");
        }
    }
}
