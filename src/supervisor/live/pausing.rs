//! Sessions that are paused: their state lies on a disk, and they have no worker until they are used again.
//!
//! To its caller a paused session is one whose next answer takes longer. It ends by the same clocks.

use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use super::Refusal;
use super::caller::{Caller, CallerEvent, Payload, awaited};
use super::cell::{CellUnderWay, StateRequest};
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

/// The number of the request by which a session is paused that was not used. Callers count from 1.
pub(super) const PAUSE: u64 = u64::MAX;

/// Whether a session may be paused.
#[derive(Debug, Default)]
pub enum Pause {
    /// Once it was not used for long enough.
    #[default]
    Possible,
    /// It was tried. It is not tried again until the session was used.
    Tried,
    /// Its state is on the disk.
    Done {
        /// The state.
        image: Arc<Image>,
        /// The caller's request for the pause, if there was one.
        asked: Option<u64>,
    },
    /// Its state was on the disk as its caller had asked, and it was used again since. The request has no answer yet.
    Overtaken(u64),
}

impl Pause {
    /// The caller's request that has no answer yet, once the worker is copied.
    const fn asked(&self) -> Option<u64> {
        match self {
            Self::Done { asked, .. } => *asked,
            Self::Overtaken(id) => Some(*id),
            Self::Possible | Self::Tried => None,
        }
    }
}

/// What a session that is paused keeps of its worker.
#[derive(Debug)]
pub struct Paused {
    /// Its state.
    pub image: Arc<Image>,
    /// What the next worker takes on beside the state.
    pub record: Record,
    /// The caller's request for the pause, if there was one.
    pub asked: Option<u64>,
}

/// What goes from one worker of a session to the next, beside the state.
#[derive(Clone, Debug)]
pub struct Record {
    pub(super) cells: u64,
    pub(super) born: Instant,
    pub(super) waiting_since: Instant,
    /// Since when its clocks stand, if its caller asked for the pause.
    pub(super) stands_since: Option<Instant>,
    pub(super) ends: Option<(Instant, &'static str)>,
    pub(super) spent: Option<Spent>,
}

/// What ends the wait of a session that is paused.
#[derive(Debug)]
pub enum Use {
    /// The caller says something.
    Caller(ClientRequest, Payload),
    /// The caller has disconnected.
    Gone,
    /// Something is wanted of its programs or directories.
    ProgramOrWatch,
    /// A clock has ended it. Holds the reason, as part of a sentence.
    Over(&'static str),
}

impl Paused {
    /// Waits until the session is used, or over.
    pub fn await_use(&self, caller: &mut dyn Caller, queue: Option<&Queue>) -> Result<Use, Errno> {
        loop {
            match caller.recv() {
                CallerEvent::Nothing => {}
                // They come too late for a cell.
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
            let over = self.record.ends.filter(|(end, _)| clock::now() >= *end);
            if let Some((_, why)) = over {
                return Ok(Use::Over(why));
            }
            let bell = queue.map(|queue| (queue.bell(), PollFlags::POLLIN));
            let until = self.record.ends.map(|(end, _)| end);
            let [_, rings] = wait([awaited(caller), bell], until)?;
            caller.flush();
            if is_readable(rings) {
                return Ok(Use::ProgramOrWatch);
            }
        }
    }
}

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// When the session is to be paused.
    pub(super) fn end_of_use(&self) -> Option<Instant> {
        let is_unused = self.cell.is_none() && matches!(self.pause, Pause::Possible);
        let after = self.session_terms().pause_after.filter(|_| is_unused)?;
        self.used.checked_add(after)
    }

    /// Notes that the session is used.
    pub(super) fn note_use(&mut self, now: Instant) {
        self.used = now;
        let asked = self.pause.asked();
        self.pause = asked.map_or(Pause::Possible, Pause::Overtaken);
    }

    /// Answers the caller's request for a pause that does not come, if there is one.
    pub(super) fn refuse_pause(&mut self, refusal: Refusal, caller: &mut dyn Caller) {
        if let Some(id) = self.pause.asked() {
            self.pause = Pause::Possible;
            caller.refuse(Some(id), refusal);
        }
    }

    /// The cell of the session's caller, which a pause is not.
    pub(super) fn cell_of_caller(&mut self) -> Option<&mut CellUnderWay> {
        let is_pausing = self.is_pausing();
        self.cell.as_mut().filter(|_| !is_pausing)
    }

    /// Whether the worker is being copied for a pause.
    pub fn is_pausing(&self) -> bool {
        let state = self.cell.as_ref().map(|cell| &cell.state);
        matches!(state, Some(StateRequest::Copied(Medium::Disk, _)))
    }

    /// What to wait for from the caller. While its session is copied for a pause, what it says waits.
    pub fn heard<'c>(&self, caller: &'c dyn Caller) -> Option<(BorrowedFd<'c>, PollFlags)> {
        awaited(caller).filter(|_| !self.is_pausing())
    }

    /// Whether the state is on the disk, or was.
    pub fn is_paused(&self) -> bool {
        matches!(self.pause, Pause::Done { .. } | Pause::Overtaken(_))
    }

    /// Asks the worker of a session that was not used to stand, unless it is used in another way or cannot be copied.
    pub(super) fn begin_pause(&mut self, now: Instant) {
        if !self.io.is_asleep() {
            // The guest is at work, which is a use.
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
        self.have_stand(PAUSE, Medium::Disk, now, caller);
    }

    /// The worker goes on after it was copied, and is not needed any more.
    pub(super) fn finish_pause(
        &mut self,
        id: u64,
        copied: Option<Result<Arc<Image>, SnapshotRefusal>>,
        result: &CellResult,
        caller: &mut dyn Caller,
    ) {
        let asked = (id != PAUSE).then_some(id);
        match (copy_of(copied, result), asked) {
            (Ok(image), asked) => self.pause = Pause::Done { image, asked },
            (Err(refusal), Some(id)) => caller.refuse(Some(id), refusal.into()),
            (Err(refusal), None) => note_refusal(&refusal),
        }
    }

    /// What is kept of a session that was paused, unless it is used again already.
    pub fn take_paused(&mut self, now: Instant, caller: &mut dyn Caller) -> Option<Paused> {
        let (image, asked) = match mem::replace(&mut self.pause, Pause::Tried) {
            Pause::Done { image, asked } => (image, asked),
            // It was used meanwhile, and may be paused after that.
            other => {
                self.pause = other;
                self.refuse_pause(SnapshotRefusal::Changed.into(), caller);
                return None;
            }
        };
        // Watches end by a pause that the caller asked for. They hold back any other.
        let is_used = asked.is_none() && self.io.is_used();
        if is_used || self.cell.is_some() || self.reap_until.is_some() || !self.io.rest() {
            if asked.is_some() {
                caller.refuse(asked, SnapshotRefusal::Changed.into());
            }
            return None;
        }
        let ends = [
            (self.end_of_waiting(), super::clocks::WAITED),
            (self.end_of_life(), super::clocks::OLD),
        ];
        let ends = ends.into_iter().filter_map(|(end, why)| Some((end?, why)));
        Some(Paused {
            record: Record {
                cells: self.cells,
                born: self.born,
                waiting_since: self.waiting_since,
                stands_since: asked.map(|_| now),
                ends: ends.min().filter(|_| asked.is_none()),
                spent: self.io.network().map(WorkerNetwork::spent),
            },
            image,
            asked,
        })
    }

    /// Goes on with a session that was paused, in a worker that has its state.
    pub(super) fn resume(&mut self, record: Record, now: Instant) {
        self.go_on(record.cells, now);
        let stood = record.stands_since;
        let stood = stood.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.born = record.born + stood;
        self.waiting_since = record.waiting_since + stood;
        if let Some((network, spent)) = self.io.network().zip(record.spent) {
            network.spend(spent);
        }
    }
}

/// A session that cannot be paused stays as it is, which no one has asked about.
fn note_refusal(refusal: &SnapshotRefusal) {
    if matches!(refusal, SnapshotRefusal::NoDisk(_)) {
        tracing::warn!(%refusal, "sessions cannot be paused");
    } else {
        tracing::debug!(%refusal, "a session is not paused");
    }
}
