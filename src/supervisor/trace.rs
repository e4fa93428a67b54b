//! Emits one `tracing` span for each run, at level `debug`. Without a subscriber it costs one load and one branch.

use tracing::field::Empty;
use tracing::{Span, debug_span};

use crate::outcome::{Outcome, microseconds};

/// Runs `run` within a new span, and records its outcome there.
pub fn in_span<E>(run: impl FnOnce() -> Result<Outcome, E>) -> Result<Outcome, E> {
    let span = span().entered();
    let outcome = run()?;
    record(&span, &outcome);
    Ok(outcome)
}

/// Creates the span of a run. Its fields are recorded when the run ends, in microseconds except `status`. A run that
/// fails leaves them empty.
fn span() -> Span {
    debug_span!(
        target: "sandfork",
        "run",
        status = Empty,
        place = Empty,
        fork = Empty,
        jail = Empty,
        verify = Empty,
        code = Empty,
        exit = Empty,
        reap = Empty,
        jail.descriptors = Empty,
        jail.cgroup = Empty,
        jail.namespaces = Empty,
        jail.mounts = Empty,
        jail.limits = Empty,
        jail.identity = Empty,
        jail.landlock = Empty,
        jail.capabilities = Empty,
        jail.seccomp = Empty,
    )
}

fn record(span: &Span, outcome: &Outcome) {
    if span.is_disabled() {
        return;
    }
    span.record("status", outcome.status().as_str());
    let phases = outcome.usage().phases;
    for (name, time) in phases.each() {
        span.record(name, microseconds(time));
    }
    for (name, time) in phases.jail_steps.each() {
        span.record(format!("jail.{name}").as_str(), microseconds(time));
    }
}
