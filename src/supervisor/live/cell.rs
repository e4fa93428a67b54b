//! The cell that is under way.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::Payload;
use super::wakeful::Busy;
use crate::protocol::CellResult;
use crate::protocol::message::Then;
use crate::supervisor::cgroup::Counts;
use crate::supervisor::ending::Stop;

/// A request that the worker is answering: a cell, or something that is answered like one.
#[derive(Debug)]
pub struct CellUnderWay {
    /// Of the request.
    pub id: u64,
    /// When the worker got it.
    pub started: Instant,
    /// When its time is up.
    pub deadline: Instant,
    /// Whether output is handed on as it comes.
    pub streaming: Streaming,
    /// What the worker does after it.
    pub then: Then,
    /// What had been counted before.
    pub before: Counts,
    /// Calls of host tools that the caller has not answered.
    pub calls: BTreeSet<u64>,
    /// Since when the clock stands still, because the caller is answering calls.
    pub paused: Option<Instant>,
    /// Why it was interrupted.
    pub interrupted: Option<Interrupted>,
    /// What the worker said, where its end is still awaited.
    pub result: Option<(CellResult, Payload)>,
    /// When it said so.
    pub answered: Option<Instant>,
    /// Bytes of what it displayed.
    pub displayed: u64,
    _busy: Busy,
}

/// Whether a cell's output is handed on as it comes, or right before its outcome.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Streaming {
    /// As it comes.
    AsItComes,
    /// Right before the outcome.
    AtTheEnd,
}

/// An interrupt that was sent.
#[derive(Debug)]
pub struct Interrupted {
    /// Why.
    pub stop: Stop,
    /// When the worker is ended, if the cell has not.
    pub until: Instant,
}

impl CellUnderWay {
    /// A cell that begins now.
    pub fn new(id: u64, wall: Duration, before: Counts) -> Self {
        let now = Instant::now();
        Self {
            id,
            started: now,
            deadline: now + wall,
            streaming: Streaming::AtTheEnd,
            then: Then::Stay,
            before,
            calls: BTreeSet::new(),
            paused: None,
            interrupted: None,
            result: None,
            answered: None,
            displayed: 0,
            _busy: Busy::new(),
        }
    }

    /// When something is to be done about it, if it goes on as it does.
    pub fn next_event(&self) -> Option<Instant> {
        match &self.interrupted {
            Some(interrupted) => Some(interrupted.until),
            None => self.paused.is_none().then_some(self.deadline),
        }
    }

    /// Whether its time is up.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.interrupted.is_none() && self.paused.is_none() && now >= self.deadline
    }

    /// The clock goes on: the caller has answered.
    pub fn resume(&mut self, now: Instant) {
        if let Some(since) = self.paused.take() {
            self.deadline += now - since;
        }
    }
}
