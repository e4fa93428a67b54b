//! The running cell.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Payload;
use super::adaptive_poll::Busy;
use super::calls::OpenCalls;
use super::clocks::WallClock;
use super::questions::OpenQuestions;
use crate::outcome::Limits;
use crate::protocol::CellResult;
use crate::protocol::message::AfterCell;
use crate::supervisor::cgroup::Counts;
use crate::supervisor::ending::Stop;
use crate::supervisor::snapshot::{Image, Medium, SnapshotRefusal};
use sandfork_jail::restore::Step;

/// How long the worker has for the interrupt before the first reminder.
const FIRST_REMINDER: Duration = Duration::from_millis(1);

/// A request that the worker is processing: a cell, or a request that is answered like one.
#[derive(Debug)]
pub struct CellUnderWay {
    /// The request's id.
    pub id: u64,
    /// When the worker got it.
    pub started: Instant,
    /// The cell's wall clock.
    pub clock: WallClock,
    /// Its limits: those of the session, but for times of its own.
    pub limits: Limits,
    /// Whether output is forwarded as it arrives.
    pub streaming: Streaming,
    /// What the worker does after the cell.
    pub then: AfterCell,
    /// The counts at the start of the cell.
    pub before: Counts,
    /// Calls of host tools that the caller has not answered.
    pub calls: OpenCalls,
    /// Connections on which the caller has not decided.
    pub questions: OpenQuestions,
    /// Why the cell was interrupted.
    pub interrupted: Option<Interrupted>,
    /// The worker's result, if the worker's end is still awaited.
    pub result: Option<(CellResult, Payload)>,
    /// When the worker sent the result.
    pub answered: Option<Instant>,
    /// Bytes that the cell displayed.
    pub displayed: u64,
    /// What the worker does in place of running guest code.
    pub state: StateRequest,
    _busy: Busy,
}

/// What is done with the state of a session.
#[derive(Debug, Default)]
pub enum StateRequest {
    /// Nothing: guest code runs.
    #[default]
    None,
    /// It is copied; to a disk, so that the session can be paused. Holds the result, once the worker has stood.
    Copied(Medium, Option<Result<Arc<Image>, SnapshotRefusal>>),
    /// It is replaced by this one, once the worker stands.
    Replaced(Arc<Image>),
    /// It could be replaced by this one, once the worker stands. That is tried out, and the worker is not used.
    Tried(Arc<Image>),
    /// The worker carries out these steps, or could.
    Restoring(Vec<Step>),
}

/// Whether a cell's output is forwarded as it arrives, or just before its outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Streaming {
    /// As it arrives.
    AsItComes,
    /// Just before the outcome.
    AtTheEnd,
}

/// An interrupt that was sent to the worker.
#[derive(Debug)]
pub struct Interrupted {
    /// Why it was sent.
    pub stop: Stop,
    /// When the worker is ended, if the cell has not ended by then.
    pub until: Instant,
    /// When the worker is reminded of it, if the cell has not ended by then.
    pub reminder: Instant,
    /// How long it waits for the next reminder then.
    pause: Duration,
}

impl Interrupted {
    /// An interrupt that is sent now.
    pub fn new(stop: Stop, now: Instant, until: Instant) -> Self {
        Self {
            stop,
            until,
            reminder: now + FIRST_REMINDER,
            pause: FIRST_REMINDER,
        }
    }

    /// Whether a reminder is due. The next one is due after twice the time.
    pub fn takes_reminder(&mut self, now: Instant) -> bool {
        let is_due = now >= self.reminder;
        if is_due {
            self.pause *= 2;
            self.reminder = now + self.pause;
        }
        is_due
    }
}

impl CellUnderWay {
    /// A cell that starts now.
    pub fn new(
        id: u64,
        started: Instant,
        clock: WallClock,
        limits: Limits,
        before: Counts,
    ) -> Self {
        Self {
            id,
            started,
            clock,
            limits,
            streaming: Streaming::AtTheEnd,
            then: AfterCell::Stay,
            before,
            calls: OpenCalls::default(),
            questions: OpenQuestions::default(),
            interrupted: None,
            result: None,
            answered: None,
            displayed: 0,
            state: StateRequest::None,
            _busy: Busy::new(),
        }
    }

    /// Notes that the cell, which has ended, printed more than it may.
    pub fn has_printed_too_much(&mut self, now: Instant) {
        self.interrupted
            .get_or_insert_with(|| Interrupted::new(Stop::output(), now, now));
    }

    /// When the cell next needs attention, if nothing else happens.
    pub fn next_event(&self) -> Instant {
        match &self.interrupted {
            Some(interrupted) => interrupted.until.min(interrupted.reminder),
            None => self.clock.end(),
        }
    }

    /// Whether its time is up.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.interrupted.is_none() && now >= self.clock.end()
    }
}
