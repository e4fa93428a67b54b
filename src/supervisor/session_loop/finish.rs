//! Ends a cell and reports it to the caller.

use std::mem;
use std::time::Instant;

use super::caller::{Caller, Payload};
use super::cell::{RunningCell, StateRequest, Streaming};
use super::life::WorkerLife;
use super::worker_io::WorkerIo;
use crate::outcome::Phases;
use crate::protocol::caller::{CellOutcome, ClientEvent, SessionState, WireOutcome};
use crate::protocol::message::Finish;
use crate::protocol::{Blob, CellResult, Ended, Value};
use crate::supervisor::drain::{Drained, Stream};
use crate::supervisor::egress::WorkerNetwork;
use crate::supervisor::ending::{Kind, Stop};
use crate::supervisor::run::{Fate, Observed, report};
use crate::supervisor::snapshot::Medium;
use sandfork_jail::control::{Exit, ExitStatus};

/// The worker's result of a cell, split into parts.
#[derive(Default)]
struct ResultParts {
    result: Option<CellResult>,
    value: Option<Value>,
    blob: Option<Blob>,
    payload: Payload,
    finish: Finish,
}

impl ResultParts {
    fn new((mut result, payload): (CellResult, Payload)) -> Self {
        let value = match &mut result.ended {
            Ended::Ok(value) => value.take(),
            Ended::Exception(_) | Ended::Exit(_) => None,
        };
        Self {
            value,
            blob: result.blob.take(),
            payload,
            finish: result.finish,
            result: Some(result),
        }
    }

    /// Removes the parts that only a successful cell has.
    fn without_value(self) -> Self {
        Self {
            result: self.result,
            ..Self::default()
        }
    }
}

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// Handles the end of a cell after which the worker waits for the next one.
    pub(super) fn finish_live(
        &mut self,
        result: CellResult,
        payload: Payload,
        now: Instant,
        caller: &mut dyn Caller,
    ) {
        let Some(mut cell) = self.cell.take() else {
            return;
        };
        self.refuse_open_calls(&cell);
        match mem::take(&mut cell.state) {
            StateRequest::Copied(Medium::Memory, copied) => {
                self.finish_snapshot(cell.id, copied, &result, caller);
            }
            StateRequest::Copied(Medium::Disk, copied) => {
                self.finish_pause(cell.id, copied, &result, caller);
                return self.watch_as_waiting(now);
            }
            _ => {
                self.finish(cell, Some((result, payload)), Fate::Lives, now, caller);
            }
        }
        self.used = now;
        self.watch_between_cells(now);
    }

    /// Reports a cell's outcome to the caller. Returns its status.
    pub(super) fn finish(
        &mut self,
        mut cell: RunningCell,
        result: Option<(CellResult, Payload)>,
        fate: Fate,
        now: Instant,
        caller: &mut dyn Caller,
    ) -> &'static str {
        let (output_bytes, stderr) = self.forward_remaining_output(&mut cell, now, caller);
        let parts = result.or_else(|| cell.result.take());
        let mut parts = parts.map(ResultParts::new).unwrap_or_default();
        let observed = self.observe(&mut cell, parts.result.take(), fate, now);
        let outcome = report(&self.terms, Kind::Cell, observed, output_bytes, &stderr);
        let status = outcome.status().as_str();
        if !outcome.is_ok() {
            parts = parts.without_value();
        }
        let ended = CellOutcome {
            id: cell.id,
            outcome: WireOutcome(outcome),
            value: parts.value,
            by_tool: parts.finish == Finish::Tool,
            quiet: parts.finish == Finish::Quietly,
            session: match fate {
                // A session over its age limit ends right after its cell.
                Fate::Lives if !self.is_too_old(now) => SessionState::Live,
                Fate::Lives | Fate::Ended => SessionState::Ended,
            },
            execution_count: self.cells,
            cpu_limit: (cell.limits.cpu() != self.terms.limits.cpu())
                .then_some(cell.limits.cpu().as_secs_f64()),
            blob: parts.blob,
        };
        caller.answer(ClientEvent::Outcome(Box::new(ended)), parts.payload);
        status
    }

    /// Forwards the remaining output. Returns the number of bytes that the cell printed, and its stderr.
    fn forward_remaining_output(
        &mut self,
        cell: &mut RunningCell,
        now: Instant,
        caller: &mut dyn Caller,
    ) -> (u64, Vec<u8>) {
        let id = cell.id;
        for stream in [Stream::Stdout, Stream::Stderr] {
            let drained = match cell.streaming {
                Streaming::Immediate => {
                    let mut forward = |bytes: &[u8]| caller.output(id, stream, bytes);
                    self.io.drain(stream, &mut forward)
                }
                Streaming::AtEnd => self.io.drain(stream, &mut |_| {}),
            };
            if drained == Drained::OverCap {
                cell.note_excess_output(now);
            }
        }
        let (stdout, stderr, total) = self.io.take_output();
        if cell.streaming == Streaming::AtEnd {
            caller.output(id, Stream::Stdout, &stdout);
            caller.output(id, Stream::Stderr, &stderr);
        }
        (total, stderr)
    }

    pub(super) fn observe(
        &mut self,
        cell: &mut RunningCell,
        result: Option<CellResult>,
        fate: Fate,
        now: Instant,
    ) -> Observed {
        let answered = cell.answered.unwrap_or(now);
        let ended = match fate {
            Fate::Lives => answered,
            Fate::Ended => self.exited.unwrap_or(answered),
        };
        let stop = match cell.interrupted.take().map(|interrupted| interrupted.stop) {
            // The cell succeeded before the interrupt arrived.
            Some(Stop::Cancelled) if fate == Fate::Lives && succeeded(result.as_ref()) => None,
            Some(stop) => Some(stop),
            None => self.stop.clone(),
        };
        self.counted = self.io.counts();
        let traffic = self.io.network().map(WorkerNetwork::report);
        Observed {
            stop,
            exit: match (fate, &result) {
                (Fate::Lives, Some(result)) => Some(matching_exit(&result.ended)),
                _ => self.exit,
            },
            result,
            counts: self.counted.since(&cell.before),
            watched: self.io.measured(),
            files: self.io.files(),
            wall: ended.saturating_duration_since(cell.started),
            limits: cell.limits,
            phases: Phases {
                code: answered - cell.started,
                ..Phases::default()
            },
            traffic: traffic.unwrap_or_default(),
            refused_calls: self.io.refused_calls(),
            fate,
        }
    }
}

fn succeeded(result: Option<&CellResult>) -> bool {
    result.is_some_and(|result| matches!(result.ended, Ended::Ok(_)))
}

/// Returns the exit that matches a cell's result, as if the main process had ended.
fn matching_exit(ended: &Ended) -> Exit {
    let code = match ended {
        Ended::Ok(_) => 0,
        Ended::Exception(_) => 1,
        Ended::Exit(code) => i32::from(*code),
    };
    Exit {
        status: ExitStatus::Code(code),
        cpu_us: 0,
        max_rss_kib: 0,
    }
}
