//! What is counted, in the text format of Prometheus.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use sandfork::Outcome;

/// The counts of a server.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    runs: Family<RunLabels, Counter>,
    phases: Family<PhaseLabels, Histogram>,
    cpu: Family<TenantLabels, Counter<f64, AtomicU64>>,
    answers: Family<AnswerLabels, Counter>,
    refusals: Family<RefusalLabels, Counter>,
    times: Family<RouteLabels, Histogram>,
    /// Open sessions.
    pub sessions: Gauge,
    /// Open connections.
    pub connections: Gauge,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RunLabels {
    tenant: Arc<str>,
    status: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct TenantLabels {
    tenant: Arc<str>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct PhaseLabels {
    phase: &'static str,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct AnswerLabels {
    route: Arc<str>,
    code: u16,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RouteLabels {
    route: Arc<str>,
}

#[derive(Clone, Debug, EncodeLabelSet, Eq, Hash, PartialEq)]
struct RefusalLabels {
    tenant: Arc<str>,
    kind: &'static str,
}

/// From a millisecond, which a fresh sandbox takes, to minutes.
fn histogram() -> Histogram {
    const BOUNDS: [f64; 14] = [
        0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0,
    ];
    Histogram::new(BOUNDS)
}

impl Metrics {
    /// Counts of nothing yet.
    pub fn new() -> Self {
        let mut registry = Registry::with_prefix("sandfork");
        let runs = Family::default();
        registry.register("runs", "Runs and cells that ended, by status", runs.clone());
        let phases = Family::new_with_constructor(histogram as fn() -> Histogram);
        registry.register_with_unit(
            "phase",
            "The time of each phase of a run, as `usage.phases` of its outcome has it",
            Unit::Seconds,
            phases.clone(),
        );
        let cpu = Family::default();
        registry.register_with_unit(
            "cpu",
            "Processor time of guests",
            Unit::Seconds,
            cpu.clone(),
        );
        let answers = Family::default();
        registry.register("answers", "Answers of the server", answers.clone());
        let times = Family::new_with_constructor(histogram as fn() -> Histogram);
        registry.register_with_unit(
            "answer",
            "The time of an answer",
            Unit::Seconds,
            times.clone(),
        );
        let refusals = Family::default();
        registry.register("refusals", "Requests without a result", refusals.clone());
        let (sessions, connections) = (Gauge::default(), Gauge::default());
        registry.register("sessions", "Open sessions", sessions.clone());
        registry.register("connections", "Open connections", connections.clone());
        Self {
            registry,
            runs,
            phases,
            cpu,
            answers,
            refusals,
            times,
            sessions,
            connections,
        }
    }

    /// Counts a run or a cell that has ended.
    pub fn ended(&self, tenant: &Arc<str>, outcome: &Outcome) {
        let (tenant, usage) = (Arc::clone(tenant), outcome.usage());
        let status = outcome.status().as_str();
        self.runs
            .get_or_create(&RunLabels {
                tenant: Arc::clone(&tenant),
                status,
            })
            .inc();
        self.used(&tenant, usage.cpu);
        for (phase, time) in usage.phases.each() {
            self.phases
                .get_or_create(&PhaseLabels { phase })
                .observe(time.as_secs_f64());
        }
    }

    /// Counts processor time of a tenant's guests.
    pub fn used(&self, tenant: &Arc<str>, time: Duration) {
        let tenant = Arc::clone(tenant);
        let cpu = self.cpu.get_or_create(&TenantLabels { tenant });
        cpu.inc_by(time.as_secs_f64());
    }

    /// Counts an answer.
    pub fn answered(&self, route: &Arc<str>, code: u16, time: Duration) {
        let route = Arc::clone(route);
        self.times
            .get_or_create(&RouteLabels {
                route: Arc::clone(&route),
            })
            .observe(time.as_secs_f64());
        self.answers
            .get_or_create(&AnswerLabels { route, code })
            .inc();
    }

    /// Counts a request without a result.
    pub fn refused(&self, tenant: &Arc<str>, kind: &'static str) {
        let tenant = Arc::clone(tenant);
        self.refusals
            .get_or_create(&RefusalLabels { tenant, kind })
            .inc();
    }

    /// The text of all counts.
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
