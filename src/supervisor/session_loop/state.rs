//! Copies the state of a session into an image, and restores images into workers.
//!
//! Both happen while the worker is stopped at a copy point.

use std::mem;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno;

use super::caller::{Caller, Payload};
use super::cell::{RunningCell, StateRequest};
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

/// The ids of the request to restore an image. Several workers may be restored from one snapshot, so each of them
/// reseeds its random number generators. The one worker that continues a paused session does not. Both ids are free
/// again before the caller's first request.
const RESTORED: u64 = 0;
const RESUMED: u64 = 1;

/// The state in which a session's worker begins.
#[derive(Debug)]
pub enum Beginning {
    /// A new interpreter.
    Fresh,
    /// This image, which is restored into the worker now.
    State(Arc<Image>),
    /// None: the worker only has to prove that this image can be restored into it.
    Trial(Arc<Image>),
    /// This image, which was restored into the worker already.
    Restored(Arc<Image>),
    /// The image of a paused session, which was restored into the worker already.
    Resumed(Record),
}

/// The data byte that accompanies a descriptor.
const BYTE: [u8; 1] = [0];

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// Starts to copy the session, unless it cannot be copied. A copy to disk pauses the session.
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
        self.request_copy_point(id, medium, now, caller);
    }

    /// Requests that the worker stop at a copy point, to be copied to `medium`.
    pub(super) fn request_copy_point(
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

    /// Starts to restore an image, or to try whether it can be restored. The worker replies as it does to a cell.
    /// `what` says which of the two.
    pub fn begin_restored(
        &mut self,
        image: Arc<Image>,
        what: fn(Arc<Image>) -> StateRequest,
        now: Instant,
    ) -> Result<(), SupervisorError> {
        let order = self.io.restore_order(&image)?;
        let attachments = image.attachments()?;
        let mut frame = Vec::new();
        let id = if image.is_paused() { RESUMED } else { RESTORED };
        let request = Request::Restore { id };
        let encoded = request.encode_into(&order, &mut frame);
        encoded.map_err(|error| SnapshotRefusal::Guest(error.to_string()))?;
        let clock = self.wall_clock(now, self.terms.limits.wall());
        let limits = self.terms.limits;
        let before = self.io.counts();
        let mut cell = RunningCell::new(id, now, clock, limits, before);
        self.cells = image.cells();
        cell.state = what(image);
        self.cell = Some(cell);
        // This loop ends with the restore. The loop that serves the worker next may pause the session.
        self.pause = Pause::Tried;
        self.io
            .restart_watch(Pace::Running, now, before.cpu_us, limits.cpu());
        self.io.send(frame, None);
        self.io.send_starter_socket();
        for file in attachments {
            self.io.send(BYTE.to_vec(), Some(file));
        }
        Ok(())
    }

    /// Whether an image is being restored into the worker, even if only on trial.
    pub fn is_restoring(&self) -> bool {
        let cell = self.cell.as_ref();
        cell.is_some_and(|cell| [RESTORED, RESUMED].contains(&cell.id))
    }

    /// Whether the worker has yet to prove that the image can be restored into it.
    pub fn is_on_trial(&self) -> bool {
        let state = self.cell.as_ref().map(|cell| &cell.state);
        self.is_restoring() && !matches!(state, Some(StateRequest::Restoring(_)))
    }

    /// Whether the worker is being copied, or an image is being restored into it.
    pub fn is_copied_or_restored(&self) -> bool {
        let state = self.cell.as_ref().map(|cell| &cell.state);
        state.is_some_and(|state| !matches!(state, StateRequest::None))
    }

    /// Begins to serve a worker into which an image was restored. The image's session has run `cells` cells.
    pub fn continue_restored(&mut self, cells: u64, now: Instant) {
        self.greeted = true;
        self.cells = cells;
        self.used = now;
        let cpu = self.terms.limits.cpu();
        // No cell reports the CPU time of the restore.
        self.count_between_cells();
        self.io
            .restart_watch(Pace::Waiting, now, self.counted.cpu_us, cpu);
    }

    /// Handles a worker's report that it has stopped at a copy point. Guest code can forge this report at any time.
    pub(super) fn on_copy_point(&mut self, at: CopyPoint) -> Result<(), String> {
        let refused = Err(format!(
            "it reported an unexpected copy point for request {}",
            at.id
        ));
        let Some(cell) = self.cell.as_mut().filter(|cell| cell.id == at.id) else {
            return refused;
        };
        let is_on_trial = matches!(cell.state, StateRequest::Tried(_));
        match mem::take(&mut cell.state) {
            StateRequest::Copied(medium, None) => {
                let image = self.io.capture(at, self.cells, medium);
                cell.state = StateRequest::Copied(medium, Some(image.map(Arc::new)));
                let mut frame = Vec::new();
                // A message without a payload always fits into a frame.
                _ = Request::GoOn.encode_into(&[], &mut frame);
                self.io.send(frame, None);
                Ok(())
            }
            StateRequest::Replaced(image) | StateRequest::Tried(image) => {
                match self.io.plan(&image, &at, cell.id) {
                    Ok((file, steps)) => {
                        cell.state = StateRequest::Restoring(steps);
                        if !is_on_trial {
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

    /// Handles a worker's report that a restore step failed. Guest code can forge this report at any time.
    pub(super) fn on_failed_step(&mut self, failed: &FailedStep) -> Result<(), String> {
        let steps: &[Step] = match self.cell.as_ref().map(|cell| &cell.state) {
            Some(StateRequest::Restoring(steps)) => steps,
            _ => &[],
        };
        let Some(step) = steps.get(failed.step) else {
            return Err("it reported the failure of an unknown restore step".to_owned());
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

    /// Replies to a request for a snapshot, once the worker has resumed.
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
    /// Serves the worker while `goes_on` holds: until the image is restored, or the trial has succeeded.
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

/// Returns the image of a copied session, or the reason why there is none, once the worker has resumed.
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
        // The native half raises its refusals as this class.
        Ended::Exception(GuestError { name, message, .. }) if name == "RuntimeError" => {
            message.clone()
        }
        Ended::Exception(GuestError { name, message, .. }) => format!("{name}: {message}"),
        Ended::Ok(_) | Ended::Exit(_) => "it replied before it reached a copy point".to_owned(),
    }
}

/// The caller of the requests that the supervisor itself sends to a worker: to restore an image, or to be copied for a
/// pause.
#[derive(Default)]
pub struct InternalCaller {
    failed: Option<Refusal>,
}

impl InternalCaller {
    /// Returns the error of a failed request.
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
