//! Paused sessions: the session's state is on disk, and the session has no worker until its next use.
//!
//! A caller's next request to a paused session only takes longer. The idle and age limits keep running, unless the
//! caller requested the pause.

use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use super::Refusal;
use super::caller::{Caller, CallerEvent, Payload, awaited};
use super::cell::{RunningCell, StateRequest};
use super::life::WorkerLife;
use super::state::{InternalCaller, copy_of};
use super::worker_io::WorkerIo;
use crate::protocol::CellResult;
use crate::protocol::caller::ClientRequest;
use crate::supervisor::clock;
use crate::supervisor::egress::{Spent, WorkerNetwork};
use crate::supervisor::programs::Queue;
use crate::supervisor::snapshot::{Image, Medium, SnapshotRefusal};
use crate::supervisor::wait::{is_readable, wait};

/// The request id of a pause that the supervisor begins because the session is unused. Callers count from 1.
pub(super) const PAUSE: u64 = u64::MAX;

/// How far the pause of a session has come.
#[derive(Debug, Default)]
pub enum Pause {
    /// The session is paused once it has been unused for long enough.
    #[default]
    Possible,
    /// A pause was tried. The next attempt follows only after another use of the session.
    Tried,
    /// The session's state is on disk.
    Done {
        /// The state.
        image: Arc<Image>,
        /// The caller's request for the pause, if there was one.
        request_id: Option<u64>,
    },
    /// The session was used again after its state was written to disk at its caller's request. Holds the id of that
    /// request, which has no reply yet.
    Overtaken(u64),
}

impl Pause {
    /// Returns the id of the caller's request for a pause that still needs a reply after the worker was copied.
    const fn request_id(&self) -> Option<u64> {
        match self {
            Self::Done { request_id, .. } => *request_id,
            Self::Overtaken(id) => Some(*id),
            Self::Possible | Self::Tried => None,
        }
    }
}

/// What remains of a paused session's worker.
#[derive(Debug)]
pub struct Paused {
    /// The session's state.
    pub image: Arc<Image>,
    /// The clocks and counters that the next worker continues.
    pub record: Record,
    /// The caller's request for the pause, if there was one.
    pub request_id: Option<u64>,
}

/// The clocks and counters of a session, which pass from one worker to the next.
#[derive(Clone, Debug)]
pub struct Record {
    pub(super) cells: u64,
    pub(super) born: Instant,
    pub(super) waiting_since: Instant,
    /// When the session's clocks were stopped, if its caller requested the pause.
    pub(super) clocks_stopped_at: Option<Instant>,
    pub(super) expires: Option<(Instant, &'static str)>,
    pub(super) spent: Option<Spent>,
}

/// The event that ends the wait of a paused session.
#[derive(Debug)]
pub enum Use {
    /// The caller sent a request.
    Caller(ClientRequest, Payload),
    /// The caller has disconnected.
    Gone,
    /// A program or a directory watch was requested.
    ProgramOrWatch,
    /// The idle or age limit was reached. Holds the reason, as part of a sentence.
    Over(&'static str),
}

impl Paused {
    /// Waits until the session is used or has ended.
    pub fn await_use(&self, caller: &mut dyn Caller, queue: Option<&Queue>) -> Result<Use, Errno> {
        loop {
            match caller.recv() {
                CallerEvent::Nothing => {}
                // The cell that they refer to has ended.
                CallerEvent::Request(ClientRequest::Interrupt | ClientRequest::Return(_), _) => {
                    continue;
                }
                CallerEvent::Request(request, payload) => return Ok(Use::Caller(request, payload)),
                CallerEvent::Gone => return Ok(Use::Gone),
                CallerEvent::Malformed(how) => {
                    caller.refuse(None, Refusal::Protocol(how));
                    return Ok(Use::Gone);
                }
            }
            let over = self.record.expires.filter(|(end, _)| clock::now() >= *end);
            if let Some((_, why)) = over {
                return Ok(Use::Over(why));
            }
            let bell = queue.map(|queue| (queue.bell(), PollFlags::POLLIN));
            let until = self.record.expires.map(|(end, _)| end);
            let [_, bell_events] = wait([awaited(caller), bell], until)?;
            caller.flush();
            if is_readable(bell_events) {
                return Ok(Use::ProgramOrWatch);
            }
        }
    }
}

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// Returns when the session is to be paused.
    pub(super) fn pause_due(&self) -> Option<Instant> {
        let is_unused = self.cell.is_none() && matches!(self.pause, Pause::Possible);
        let after = self.session_terms().pause_after.filter(|_| is_unused)?;
        self.used.checked_add(after)
    }

    /// Records a use of the session.
    pub(super) fn note_use(&mut self, now: Instant) {
        self.used = now;
        let request_id = self.pause.request_id();
        self.pause = request_id.map_or(Pause::Possible, Pause::Overtaken);
    }

    /// Refuses the caller's pending request for a pause, if there is one.
    pub(super) fn refuse_pause(&mut self, refusal: Refusal, caller: &mut dyn Caller) {
        if let Some(id) = self.pause.request_id() {
            self.pause = Pause::Possible;
            caller.refuse(Some(id), refusal);
        }
    }

    /// Returns the caller's running cell. A pause does not count as one.
    pub(super) fn cell_of_caller(&mut self) -> Option<&mut RunningCell> {
        let is_pausing = self.is_pausing();
        self.cell.as_mut().filter(|_| !is_pausing)
    }

    /// Whether the worker is being copied for a pause.
    pub fn is_pausing(&self) -> bool {
        let state = self.cell.as_ref().map(|cell| &cell.state);
        matches!(state, Some(StateRequest::Copied(Medium::Disk, _)))
    }

    /// Returns what to poll for at the caller: nothing while the session is copied for a pause, so that requests wait.
    pub fn caller_events<'c>(&self, caller: &'c dyn Caller) -> Option<(BorrowedFd<'c>, PollFlags)> {
        awaited(caller).filter(|_| !self.is_pausing())
    }

    /// Whether the state is on disk, even if the session was used since.
    pub fn is_paused(&self) -> bool {
        matches!(self.pause, Pause::Done { .. } | Pause::Overtaken(_))
    }

    /// Starts to pause an unused session, unless its guest, programs or watches are active, or it cannot be copied.
    pub(super) fn begin_pause(&mut self, now: Instant) {
        if !self.io.is_asleep() {
            // The guest is running code, which counts as a use.
            return self.note_use(now);
        }
        self.pause = Pause::Tried;
        if self.io.is_used() {
            return;
        }
        if let Err(refusal) = self.io.require_copyable(Medium::Disk) {
            return note_refusal(&refusal);
        }
        let caller = &mut InternalCaller::default();
        self.request_copy_point(PAUSE, Medium::Disk, now, caller);
    }

    /// Handles the result of copying a session for a pause. The worker has resumed, and is no longer needed if the copy
    /// succeeded.
    pub(super) fn finish_pause(
        &mut self,
        id: u64,
        copied: Option<Result<Arc<Image>, SnapshotRefusal>>,
        result: &CellResult,
        caller: &mut dyn Caller,
    ) {
        let request_id = (id != PAUSE).then_some(id);
        match (copy_of(copied, result), request_id) {
            (Ok(image), request_id) => self.pause = Pause::Done { image, request_id },
            (Err(refusal), Some(id)) => caller.refuse(Some(id), refusal.into()),
            (Err(refusal), None) => note_refusal(&refusal),
        }
    }

    /// Returns what to keep of a paused session, unless it was used again meanwhile.
    pub fn take_paused(&mut self, now: Instant, caller: &mut dyn Caller) -> Option<Paused> {
        let (image, request_id) = match mem::replace(&mut self.pause, Pause::Tried) {
            Pause::Done { image, request_id } => (image, request_id),
            // The session was used meanwhile. A later attempt may pause it.
            other => {
                self.pause = other;
                self.refuse_pause(SnapshotRefusal::Changed.into(), caller);
                return None;
            }
        };
        // A pause that the caller requested ends its directory watches. Any other pause is put off by them.
        let is_used = request_id.is_none() && self.io.is_used();
        if is_used || self.cell.is_some() || self.reap_until.is_some() || !self.io.defer_programs()
        {
            if request_id.is_some() {
                caller.refuse(request_id, SnapshotRefusal::Changed.into());
            }
            return None;
        }
        let ends = [
            (self.idle_deadline(), super::clocks::IDLE_EXPIRED),
            (self.age_deadline(), super::clocks::AGE_EXPIRED),
        ];
        let ends = ends.into_iter().filter_map(|(end, why)| Some((end?, why)));
        Some(Paused {
            record: Record {
                cells: self.cells,
                born: self.born,
                waiting_since: self.waiting_since,
                clocks_stopped_at: request_id.map(|_| now),
                expires: ends.min().filter(|_| request_id.is_none()),
                spent: self.io.network().map(WorkerNetwork::spent),
            },
            image,
            request_id,
        })
    }

    /// Continues a paused session in a worker into which its state was restored.
    pub(super) fn resume(&mut self, record: Record, now: Instant) {
        self.continue_restored(record.cells, now);
        let stopped_for = record.clocks_stopped_at;
        let stopped_for =
            stopped_for.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.born = record.born + stopped_for;
        self.waiting_since = record.waiting_since + stopped_for;
        if let Some((network, spent)) = self.io.network().zip(record.spent) {
            network.spend(spent);
        }
    }
}

/// Logs why the supervisor did not pause a session. No caller waits for the answer.
fn note_refusal(refusal: &SnapshotRefusal) {
    if matches!(refusal, SnapshotRefusal::NoDisk(_)) {
        tracing::warn!(%refusal, "sessions cannot be paused");
    } else {
        tracing::debug!(%refusal, "a session is not paused");
    }
}
