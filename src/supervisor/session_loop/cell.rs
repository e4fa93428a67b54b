//! The state of the running cell.

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

/// The time from an interrupt to its first reminder.
const FIRST_REMINDER: Duration = Duration::from_millis(1);

/// The request that the worker is processing: a cell, or a request with a reply like a cell's.
#[derive(Debug)]
pub struct RunningCell {
    /// The request's id.
    pub id: u64,
    /// When the request was sent to the worker.
    pub started: Instant,
    /// The cell's wall clock.
    pub clock: WallClock,
    /// The cell's limits: the session's, except for time limits that the request sets.
    pub limits: Limits,
    /// Whether output is forwarded as it arrives.
    pub streaming: Streaming,
    /// What the worker does after the cell.
    pub then: AfterCell,
    /// The counts at the start of the cell.
    pub before: Counts,
    /// Tool calls that the caller has not answered.
    pub calls: OpenCalls,
    /// Connections that wait for the caller's decision.
    pub questions: OpenQuestions,
    /// The interrupt that was sent to the cell, if one was.
    pub interrupted: Option<Interrupted>,
    /// The worker's result, kept while the end of the worker is awaited.
    pub result: Option<(CellResult, Payload)>,
    /// When the worker sent the result.
    pub answered: Option<Instant>,
    /// The bytes of displays so far.
    pub displayed: u64,
    /// What is done with the session's state, if the request is not for guest code.
    pub state: StateRequest,
    _busy: Busy,
}

/// An operation on the state of a session.
#[derive(Debug, Default)]
pub enum StateRequest {
    /// None: guest code runs.
    #[default]
    None,
    /// The state is copied, to disk if the session is to be paused. Holds the result once the worker has reached its
    /// copy point.
    Copied(Medium, Option<Result<Arc<Image>, SnapshotRefusal>>),
    /// The state is replaced by this image once the worker reaches its copy point.
    Replaced(Arc<Image>),
    /// Once the worker reaches its copy point, the replacement by this image is planned but not carried out. The worker
    /// is then discarded.
    Tried(Arc<Image>),
    /// The worker carries out these steps, unless this is a trial.
    Restoring(Vec<Step>),
}

/// When a cell's output is forwarded to the caller.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Streaming {
    /// As it arrives.
    Immediate,
    /// Just before the outcome.
    AtEnd,
}

/// An interrupt that was sent to the worker.
#[derive(Debug)]
pub struct Interrupted {
    /// Why it was sent.
    pub stop: Stop,
    /// When the worker is killed, if the cell has not ended by then.
    pub until: Instant,
    /// When the worker is reminded of the interrupt, if the cell has not ended by then.
    pub reminder: Instant,
    /// The time from that reminder to the next.
    pause: Duration,
}

impl Interrupted {
    /// Creates the record of an interrupt that is sent now.
    pub fn new(stop: Stop, now: Instant, until: Instant) -> Self {
        Self {
            stop,
            until,
            reminder: now + FIRST_REMINDER,
            pause: FIRST_REMINDER,
        }
    }

    /// Returns whether a reminder is due, and if so schedules the next one after twice the time.
    pub fn take_due_reminder(&mut self, now: Instant) -> bool {
        let is_due = now >= self.reminder;
        if is_due {
            self.pause *= 2;
            self.reminder = now + self.pause;
        }
        is_due
    }
}

impl RunningCell {
    /// Creates the state of a cell that starts now.
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
            streaming: Streaming::AtEnd,
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

    /// Records that a cell which has already ended exceeded its output limit.
    pub fn note_excess_output(&mut self, now: Instant) {
        self.interrupted
            .get_or_insert_with(|| Interrupted::new(Stop::output(), now, now));
    }

    /// Returns when the cell next needs attention, if nothing else happens.
    pub fn next_event(&self) -> Instant {
        match &self.interrupted {
            Some(interrupted) => interrupted.until.min(interrupted.reminder),
            None => self.clock.end(),
        }
    }

    /// Whether the cell has reached its deadline without having been interrupted.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.interrupted.is_none() && now >= self.clock.end()
    }
}
