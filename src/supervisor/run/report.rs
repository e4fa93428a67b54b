//! From what was seen of a run to its outcome.

use std::time::Duration;

use super::Place;
use super::files::Files;
use super::watch::Measured;
use crate::jail::control::Exit;
use crate::outcome::{Denial, Ending, Enforced, Outcome, Phases, Usage};
use crate::protocol::{CellResult, Ended};
use crate::supervisor::cgroup::Counts;
use crate::supervisor::ending::{Evidence, Kind, Stop, decide};

/// Everything that was seen of a run but its output.
pub struct Seen {
    /// Why the supervisor ended it, if it did.
    pub stop: Option<Stop>,
    /// How the main process ended.
    pub exit: Option<Exit>,
    /// What the worker said.
    pub result: Option<CellResult>,
    /// What the cgroup counted.
    pub counts: Counts,
    /// What the watchdog measured.
    pub watched: Measured,
    /// What its file systems hold.
    pub files: Files,
    /// From the request to the end of the main process.
    pub wall: Duration,
    /// Where the time went.
    pub phases: Phases,
    /// What became of the worker.
    pub fate: Fate,
}

/// What became of a worker.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// It is gone, or about to be.
    Ended,
    /// It waits for the next cell.
    Lives,
}

/// Makes the outcome, but for its output.
pub fn report(
    place: &Place,
    kind: Kind,
    seen: Seen,
    output_bytes: u64,
    enforced: Enforced,
) -> Outcome {
    let usage = usage(&seen, output_bytes);
    let stopped = seen.stop.is_some();
    let ending = decide(&Evidence {
        stop: seen.stop,
        exit: seen.exit,
        result: seen.result.as_ref(),
        counts: seen.counts,
        no_room: seen.files.no_room,
        cpu_limit_us: u64::try_from(place.limits.cpu.as_micros()).unwrap_or(u64::MAX),
        kind,
    });
    let mut denied = Vec::new();
    if seen.counts.refused_forks > Some(0) {
        denied.push(Denial::by_kernel("fork"));
    }
    // A worker that the kernel saw ending otherwise than it said is not quoted; one that lives on
    // tells where it was interrupted.
    let believed = match ending {
        _ if seen.fate == Fate::Lives => true,
        Ending::Ok | Ending::Exception | Ending::NotStarted(_) => true,
        Ending::Limit(_) => !stopped,
        _ => false,
    };
    let (mut value, mut error) = (None, None);
    if let Some(result) = seen.result.filter(|_| believed) {
        denied.extend(result.denied.into_iter().map(Denial::from));
        match result.ended {
            Ended::Ok(said) => value = said,
            Ended::Exception(said) => error = Some(said),
            Ended::Exit(_) => {}
        }
    }
    let outcome = Outcome::new(ending, place.policy.clone(), enforced)
        .with_value(value)
        .with_usage(usage)
        .with_denied(denied);
    match error {
        Some(error) => outcome.with_error(error),
        None => outcome,
    }
}

/// The kernel's counts where it keeps them, else the largest that was seen.
fn usage(seen: &Seen, output_bytes: u64) -> Usage {
    let (counts, watched) = (&seen.counts, &seen.watched);
    let cpu_us = counts
        .cpu_us
        .or(seen.exit.map(|exit| exit.cpu_us))
        .unwrap_or(0);
    let largest = |exit: Exit| (exit.max_rss_kib * 1024).max(watched.memory);
    Usage {
        wall: seen.wall,
        cpu: Duration::from_micros(cpu_us.max(watched.cpu_us)),
        peak_memory_bytes: counts.peak_memory.or(seen.exit.map(largest)),
        peak_pids: counts.peak_pids.or(Some(watched.pids.max(1))),
        written_bytes: seen.files.bytes,
        output_bytes,
        phases: seen.phases,
    }
}
