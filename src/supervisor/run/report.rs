//! Makes a run's outcome from the evidence.

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
use crate::supervisor::live::{LifeTerms, Purpose};
use crate::supervisor::refused_calls::RefusedCalls;
use sandfork_jail::control::Exit;

/// All the evidence about a run except its output.
pub struct Seen {
    /// Why the supervisor ended it, if it did.
    pub stop: Option<Stop>,
    /// How the main process ended.
    pub exit: Option<Exit>,
    /// The result that the worker reported.
    pub result: Option<CellResult>,
    /// The counts of the cgroup.
    pub counts: Counts,
    /// The measurements of the watchdog.
    pub watched: Measured,
    /// What its files occupy.
    pub files: Files,
    /// From the request to the end of the main process.
    pub wall: Duration,
    /// Its limits.
    pub limits: Limits,
    /// How long each phase took.
    pub phases: Phases,
    /// What it did on the network.
    pub traffic: Traffic,
    /// Which calls its filter refused.
    pub refused_calls: RefusedCalls,
    /// What happened to the worker.
    pub fate: Fate,
}

/// What happened to a worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It has ended, or is about to.
    Ended,
    /// It waits for the next cell.
    Lives,
}

/// Makes the outcome without the output, of which `stderr` is a part.
pub fn report(
    terms: &LifeTerms,
    kind: Kind,
    mut seen: Seen,
    output_bytes: u64,
    stderr: &[u8],
) -> Outcome {
    let connections = mem::take(&mut seen.traffic.connections);
    let usage = usage(&seen, output_bytes);
    let stopped = seen.stop.is_some();
    let evidence = Evidence {
        stop: seen.stop,
        exit: seen.exit,
        result: seen.result.as_ref(),
        counts: seen.counts,
        full: seen.files.full,
        cpu_limit_us: match terms.purpose {
            Purpose::Run(_) => u64::try_from(seen.limits.cpu().as_micros()).ok(),
            Purpose::Session(_) => None,
        },
        kind,
        memory: terms.memory,
        stderr,
    };
    let ending = decide(&evidence);
    let without_memory = without_memory(&evidence);
    // A worker whose exit status contradicts its report is not quoted. A worker that lives on
    // reports where it was interrupted.
    let believed = match ending {
        _ if seen.fate == Fate::Lives => true,
        Ending::Ok | Ending::Exception | Ending::NotStarted(_) => true,
        Ending::Limit(_) => !stopped,
        _ => false,
    };
    let (mut value, mut error) = (None, None);
    let mut claims = Vec::new();
    if let Some(result) = seen.result.filter(|_| believed) {
        claims = result.denied;
        match result.ended {
            Ended::Ok(said) => value = said,
            Ended::Exception(said) => error = Some(said),
            Ended::Exit(_) => {}
        }
    }
    let lookup = OnceCell::new();
    let denials = Refused {
        grants: terms.grants,
        limits: &seen.limits,
        of_policy: &terms.limits,
        ending: &ending,
        counts: &seen.counts,
        without_memory,
        full: seen.files.full,
        connections: &connections,
        calls: &seen.refused_calls,
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

/// The kernel's counts if it keeps them, or else the largest values that were measured.
fn usage(seen: &Seen, output_bytes: u64) -> Usage {
    let (counts, watched) = (&seen.counts, &seen.watched);
    let cpu_us = counts
        .cpu_us
        .or(seen.exit.map(|exit| exit.cpu_us))
        .unwrap_or(0);
    let largest = |exit: Exit| (exit.max_rss_kib * 1024).max(watched.memory);
    // A session's short cell may end before the watchdog looks, and its process goes on.
    let largest = seen.exit.map(largest).filter(|memory| *memory > 0);
    Usage {
        wall: seen.wall,
        cpu: Duration::from_micros(cpu_us.max(watched.cpu_us)),
        peak_memory_bytes: counts.peak_memory.or(largest),
        peak_pids: counts.peak_pids.or(Some(watched.pids.max(1))),
        written_bytes: seen.files.bytes,
        output_bytes,
        connections: seen.traffic.count,
        sent_bytes: seen.traffic.sent,
        received_bytes: seen.traffic.received,
        phases: seen.phases,
    }
}
