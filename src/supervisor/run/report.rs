//! Makes the outcome of a run or cell from the evidence.

use std::cell::OnceCell;
use std::mem;
use std::time::Duration;

use super::AskHost;
use super::files::Files;
use super::watch::Measured;
use crate::host::Lookup;
use crate::outcome::{Ending, Limits, Outcome, Phases, Traffic, Usage};
use crate::protocol::{CellResult, Ended};
use crate::supervisor::cgroup::Counts;
use crate::supervisor::denials::Refused;
use crate::supervisor::ending::{Evidence, Kind, Stop, decide, without_memory};
use crate::supervisor::refused_calls::RefusedCalls;
use crate::supervisor::session_loop::{LifeTerms, Purpose};
use sandfork_jail::control::Exit;

/// All the evidence about a run or cell, except its output.
pub struct Observed {
    /// Why the supervisor ended the run, if it did.
    pub stop: Option<Stop>,
    /// How the main process ended.
    pub exit: Option<Exit>,
    /// The result that the worker reported.
    pub result: Option<CellResult>,
    /// The cgroup's counts.
    pub counts: Counts,
    /// The watchdog's measurements.
    pub watched: Measured,
    /// The space that the worker's files occupy.
    pub files: Files,
    /// The time from the request to the end of the main process.
    pub wall: Duration,
    /// The limits of the run or cell.
    pub limits: Limits,
    /// The duration of each phase.
    pub phases: Phases,
    /// The network traffic.
    pub traffic: Traffic,
    /// The system calls that the filter refused.
    pub refused_calls: RefusedCalls,
    /// Whether the worker lives on.
    pub fate: Fate,
}

/// Whether a worker lives on after a cell.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// The worker has ended, or is about to.
    Ended,
    /// The worker waits for the next cell.
    Lives,
}

/// Makes the outcome, without the captured output. `stderr` serves as evidence only.
pub fn report(
    terms: &LifeTerms,
    kind: Kind,
    mut observed: Observed,
    output_bytes: u64,
    stderr: &[u8],
) -> Outcome {
    let connections = mem::take(&mut observed.traffic.connections);
    let usage = usage(&observed, output_bytes);
    let stopped = observed.stop.is_some();
    let evidence = Evidence {
        stop: observed.stop,
        exit: observed.exit,
        result: observed.result.as_ref(),
        counts: observed.counts,
        full: observed.files.full,
        cpu_limit_us: match terms.purpose {
            Purpose::Run(_) => u64::try_from(observed.limits.cpu().as_micros()).ok(),
            Purpose::Session(_) => None,
        },
        kind,
        memory: terms.memory,
        stderr,
    };
    let ending = decide(&evidence);
    let without_memory = without_memory(&evidence);
    // The result of a worker whose exit status contradicts it is dropped. The result of a worker that lives on is kept:
    // it says where the cell was interrupted.
    let believed = match ending {
        _ if observed.fate == Fate::Lives => true,
        Ending::Ok | Ending::Exception | Ending::NotStarted(_) => true,
        Ending::Limit(_) => !stopped,
        _ => false,
    };
    let (mut value, mut error) = (None, None);
    let mut claims = Vec::new();
    if let Some(result) = observed.result.filter(|_| believed) {
        claims = result.denied;
        match result.ended {
            Ended::Ok(returned) => value = returned,
            Ended::Exception(raised) => error = Some(raised),
            Ended::Exit(_) => {}
        }
    }
    let lookup = OnceCell::new();
    let denials = Refused {
        grants: terms.grants,
        limits: &observed.limits,
        of_policy: &terms.limits,
        ending: &ending,
        counts: &observed.counts,
        without_memory,
        full: observed.files.full,
        connections: &connections,
        calls: &observed.refused_calls,
        claims,
        own: terms.own,
        exists: &|path| match terms.ask_host {
            AskHost::No => None,
            AskHost::Yes => lookup
                .get_or_init(|| Lookup::new().ok())
                .as_ref()?
                .exists(path),
        },
    };
    let denials = denials.explained();
    let outcome = Outcome::new(ending, terms.policy.clone(), terms.enforced.clone())
        .with_value(value)
        .with_usage(usage)
        .with_denied(denials.listed, denials.omitted)
        .with_network(connections);
    match error {
        Some(error) => outcome.with_error(error.into_exception()),
        None => outcome,
    }
}

/// Takes the kernel's counts where the kernel keeps them, and the largest measured values elsewhere.
fn usage(observed: &Observed, output_bytes: u64) -> Usage {
    let (counts, watched) = (&observed.counts, &observed.watched);
    let cpu_us = counts
        .cpu_us
        .or(observed.exit.map(|exit| exit.cpu_us))
        .unwrap_or(0);
    let largest = |exit: Exit| (exit.max_rss_kib * 1024).max(watched.memory);
    // A short cell of a session may end before the first measurement, and its process lives on, so that no exit reports
    // a value either.
    let largest = observed.exit.map(largest).filter(|memory| *memory > 0);
    Usage {
        wall: observed.wall,
        cpu: Duration::from_micros(cpu_us.max(watched.cpu_us)),
        peak_memory_bytes: counts.peak_memory.or(largest),
        peak_pids: counts.peak_pids.or(Some(watched.pids.max(1))),
        written_bytes: observed.files.bytes,
        output_bytes,
        connections: observed.traffic.count,
        sent_bytes: observed.traffic.sent,
        received_bytes: observed.traffic.received,
        phases: observed.phases,
    }
}
