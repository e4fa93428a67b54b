//! Copies the state of a session, and begins one with the state of another.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;

use super::caller::{Caller, Payload};
use super::cell::{CellUnderWay, StateRequest};
use super::life::WorkerLife;
use super::pausing::{Pause, Record};
use super::refusal::Refusal;
use super::worker_io::{JailedWorker, WorkerIo};
use super::worker_loop::WorkerLoop;
use crate::error::Error;
use crate::protocol::caller::{ClientEvent, SessionState};
use crate::protocol::message::{CopyPoint, FailedStep, GuestError};
use crate::protocol::{CellResult, Ended, Request};
use crate::supervisor::clock;
use crate::supervisor::error::SupervisorError;
use crate::supervisor::run::Pace;
use crate::supervisor::snapshot::{Image, Medium, SnapshotRefusal};
use sandfork_jail::restore::Step;

/// The numbers of the request to take on a state: as one of several that do, which get random numbers of their own,
/// and as the one that goes on with it. The caller's requests come later.
const RESTORED: u64 = 0;
const RESUMED: u64 = 1;

/// How a session begins.
#[derive(Debug)]
pub enum Beginning {
    /// As a new interpreter.
    Fresh,
    /// With this state, which its worker takes on now.
    State(Arc<Image>),
    /// Not at all: its worker is to show that it could take on this state.
    Trial(Arc<Image>),
    /// With a state that its worker has.
    Restored(Arc<Image>),
    /// With a state that its worker has, after a pause.
    Resumed(Record),
}

/// What is sent with a descriptor.
const BYTE: [u8; 1] = [0];

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// Asks the worker to stand, to be copied there, unless it cannot be copied. After a copy to the disk the session is
    /// paused.
    pub(super) fn begin_snapshot(
        &mut self,
        id: u64,
        medium: Medium,
        now: Instant,
        caller: &mut dyn Caller,
    ) {
        if let Err(refusal) = self.io.require_copyable(medium) {
            caller.refuse(Some(id), refusal.into());
            return;
        }
        self.have_stand(id, medium, now, caller);
    }

    /// Asks the worker to stand, to be copied there.
    pub(super) fn have_stand(
        &mut self,
        id: u64,
        medium: Medium,
        now: Instant,
        caller: &mut dyn Caller,
    ) {
        let request = Request::Snapshot { id };
        self.begin(id, None, &request, Payload::default(), now, caller);
        if let Some(cell) = &mut self.cell {
            cell.state = StateRequest::Copied(medium, None);
        }
    }

    /// Begins with the state of another session, which the worker answers like a cell. `what` is done with the state.
    pub fn begin_restored(
        &mut self,
        image: Arc<Image>,
        what: fn(Arc<Image>) -> StateRequest,
        now: Instant,
    ) -> Result<(), SupervisorError> {
        let order = self.io.order(&image)?;
        let attachments = image.attachments()?;
        let mut frame = Vec::new();
        let id = if image.is_paused() { RESUMED } else { RESTORED };
        let request = Request::Restore { id };
        let encoded = request.encode_into(&order, &mut frame);
        encoded.map_err(|error| SnapshotRefusal::Guest(error.to_string()))?;
        let clock = self.wall_clock(now, self.terms.limits.wall());
        let limits = self.terms.limits;
        let before = self.io.counts();
        let mut cell = CellUnderWay::new(id, now, clock, limits, before);
        self.cells = image.cells();
        cell.state = what(image);
        self.cell = Some(cell);
        // This loop ends with it. The one that serves the worker then may pause it.
        self.pause = Pause::Tried;
        self.io
            .watch_anew(Pace::Running, now, before.cpu_us, limits.cpu());
        self.io.send(frame, None);
        self.io.hand_over_summons();
        for file in attachments {
            self.io.send(BYTE.to_vec(), Some(file));
        }
        Ok(())
    }

    /// Whether the worker takes on a state.
    pub fn is_restoring(&self) -> bool {
        let cell = self.cell.as_ref();
        cell.is_some_and(|cell| [RESTORED, RESUMED].contains(&cell.id))
    }

    /// Whether the worker has still to show that it could take on a state.
    pub fn is_tried(&self) -> bool {
        let state = self.cell.as_ref().map(|cell| &cell.state);
        self.is_restoring() && !matches!(state, Some(StateRequest::Restoring(_)))
    }

    /// Whether the worker is being copied, or takes on a state.
    pub fn is_standing(&self) -> bool {
        let state = self.cell.as_ref().map(|cell| &cell.state);
        state.is_some_and(|state| !matches!(state, StateRequest::None))
    }

    /// Serves a worker that has taken on a state, in which the session has run so many cells.
    pub fn go_on(&mut self, cells: u64, now: Instant) {
        self.greeted = true;
        self.cells = cells;
        self.used = now;
        let cpu = self.terms.limits.cpu();
        // What that took has no cell to tell of it.
        self.count_between_cells();
        self.io
            .watch_anew(Pace::Waiting, now, self.counted.cpu_us, cpu);
    }

    /// The worker stands. Guest code runs in it and may say so at any time.
    pub(super) fn on_standing(&mut self, said: CopyPoint) -> Result<(), String> {
        let refused = Err(format!(
            "it stood without being asked, for request {}",
            said.id
        ));
        let Some(cell) = self.cell.as_mut().filter(|cell| cell.id == said.id) else {
            return refused;
        };
        let is_tried = matches!(cell.state, StateRequest::Tried(_));
        match mem::take(&mut cell.state) {
            StateRequest::Copied(medium, None) => {
                let image = self.io.capture(said, self.cells, medium);
                cell.state = StateRequest::Copied(medium, Some(image.map(Arc::new)));
                let mut frame = Vec::new();
                // A message without a payload fits.
                _ = Request::GoOn.encode_into(&[], &mut frame);
                self.io.send(frame, None);
                Ok(())
            }
            StateRequest::Replaced(image) | StateRequest::Tried(image) => {
                match self.io.plan(&image, &said, cell.id) {
                    Ok((file, steps)) => {
                        cell.state = StateRequest::Restoring(steps);
                        if !is_tried {
                            self.io.send(BYTE.to_vec(), Some(file));
                        }
                    }
                    Err(refusal) => self.on_fault(refusal.into()),
                }
                Ok(())
            }
            other => {
                cell.state = other;
                refused
            }
        }
    }

    /// A step has failed. Guest code runs in a session's worker and may say so at any time.
    pub(super) fn on_failed_step(&mut self, failed: &FailedStep) -> Result<(), String> {
        let steps: &[Step] = match self.cell.as_ref().map(|cell| &cell.state) {
            Some(StateRequest::Restoring(steps)) => steps,
            _ => &[],
        };
        let Some(step) = steps.get(failed.step) else {
            return Err("a step failed that it did not have".to_owned());
        };
        let errno = Errno::from_raw(failed.errno);
        let why = format!(
            "{step} failed: {} (step {} of {})",
            errno.desc(),
            failed.step + 1,
            steps.len()
        );
        self.on_fault(SupervisorError::not_restored(&why));
        Ok(())
    }

    /// Answers a request for a copy, once the worker has gone on.
    pub(super) fn finish_snapshot(
        &mut self,
        id: u64,
        copied: Option<Result<Arc<Image>, SnapshotRefusal>>,
        result: &CellResult,
        caller: &mut dyn Caller,
    ) {
        match copy_of(copied, result) {
            Ok(image) => {
                let bytes = image.bytes();
                let snapshot = self.io.keep(image);
                let event = ClientEvent::Snapshot {
                    id,
                    snapshot,
                    bytes,
                };
                caller.answer(event, Payload::default());
            }
            Err(refusal) => caller.refuse(Some(id), Refusal::Snapshot(refusal)),
        }
    }
}

impl<'a> WorkerLoop<'a> {
    /// Serves until the worker has taken on a state, or could: as long as `goes_on` says so.
    pub(super) fn until_restored(
        &mut self,
        goes_on: fn(&WorkerLife<'a, JailedWorker<'a>>) -> bool,
    ) -> Result<(), Error> {
        let mut outcome = InternalCaller::default();
        while goes_on(&self.state) {
            if matches!(self.turn(&mut outcome, None)?, ControlFlow::Break(None)) {
                _ = self.state.on_end(clock::now(), &mut outcome);
            }
        }
        outcome.result()
    }
}

/// What came of a copy, once the worker has gone on.
pub(super) fn copy_of(
    copied: Option<Result<Arc<Image>, SnapshotRefusal>>,
    result: &CellResult,
) -> Result<Arc<Image>, SnapshotRefusal> {
    match (copied, &result.ended) {
        (Some(Ok(image)), Ended::Ok(_)) => Ok(image),
        (Some(Err(refusal)), _) => Err(refusal),
        (_, ended) => Err(SnapshotRefusal::Guest(reason(ended))),
    }
}

fn reason(ended: &Ended) -> String {
    match ended {
        Ended::Exception(GuestError { name, message, .. }) => format!("{name}: {message}"),
        Ended::Ok(_) | Ended::Exit(_) => "it answered before it stood".to_owned(),
    }
}

/// The caller of the requests that the supervisor itself makes of a worker: to take on a state, or to be copied for a
/// pause.
#[derive(Default)]
pub struct InternalCaller {
    failed: Option<Refusal>,
}

impl InternalCaller {
    /// Whether the worker has the state.
    pub fn result(self) -> Result<(), Error> {
        match self.failed {
            None => Ok(()),
            Some(Refusal::NotProvided(error)) => Err(error),
            Some(other) => Err(SupervisorError::not_restored(&other.to_string()).into()),
        }
    }
}

impl Caller for InternalCaller {
    fn answer(&mut self, answer: ClientEvent, _: Payload) {
        if let ClientEvent::Outcome(ended) = answer
            && !(ended.outcome.0.is_ok() && ended.session == SessionState::Live)
        {
            let outcome = ended.outcome.0;
            let status = || format!("its worker ended with `{}`", outcome.status().as_str());
            let error = outcome.error().map(|error| error.message.clone());
            let why = error.unwrap_or_else(status);
            self.failed = Some(SupervisorError::not_restored(&why).into());
        }
    }

    fn refuse(&mut self, _: Option<u64>, refusal: Refusal) {
        self.failed = Some(refusal);
    }
}
