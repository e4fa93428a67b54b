//! Counts the runs, cells and sessions of a sandbox, and how they ended.

use std::collections::BTreeMap;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::time::Duration;

use crate::error::{Cause as _, Error, ErrorKind};
use crate::outcome::{Outcome, Status};
use crate::protocol::caller::{ClientEvent, ClientRequest};
use crate::supervisor::{Caller, CallerEvent, Payload, Refusal};
use crate::waiters::lock;

/// The counts of one sandbox.
#[derive(Debug, Default)]
pub struct Counts(Mutex<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    now: [u64; 4],
    ended: BTreeMap<&'static str, u64>,
    refused: BTreeMap<&'static str, u64>,
}

/// An activity in progress.
#[derive(Clone, Copy, Debug)]
pub enum Activity {
    Running,
    Waiting,
    Session,
    Paused,
}

/// Counts an activity as in progress until it is dropped.
#[derive(Debug)]
pub struct Counted<'c>(&'c Counts, Activity);

impl Counts {
    /// Counts an activity as begun.
    pub fn begin(&self, activity: Activity) -> Counted<'_> {
        lock(&self.0).now[activity as usize] += 1;
        Counted(self, activity)
    }

    /// Counts a cell or a run that has ended.
    fn end_as(&self, status: Status) {
        *lock(&self.0).ended.entry(status.as_str()).or_default() += 1;
    }

    /// Counts a request that was refused or got no sandbox.
    pub fn refuse(&self, kind: ErrorKind) {
        *lock(&self.0).refused.entry(kind.as_str()).or_default() += 1;
    }

    /// Returns the counts by name.
    pub fn by_name(&self) -> BTreeMap<String, u64> {
        let numbers = lock(&self.0);
        let now = ["running", "waiting", "sessions", "paused"].map(str::to_owned);
        let ended = numbers.ended.iter();
        let refused = numbers.refused.iter();
        now.into_iter()
            .zip(numbers.now)
            .chain(ended.map(|(status, count)| (format!("ended.{status}"), *count)))
            .chain(refused.map(|(kind, count)| (format!("refused.{kind}"), *count)))
            .collect()
    }
}

/// A run that is counted when it has ended.
#[derive(Debug)]
pub struct CountedRun<'c>(pub &'c Counts);

impl CountedRun<'_> {
    /// Counts the run's result.
    pub fn end(self, result: &Result<Outcome, Error>) {
        match result {
            Ok(outcome) => self.0.end_as(outcome.status()),
            Err(error) => self.0.refuse(error.kind()),
        }
        mem::forget(self);
    }
}

/// Counts the run as interrupted: its sink panicked, and its worker was killed.
impl Drop for CountedRun<'_> {
    fn drop(&mut self) {
        self.0.end_as(Status::Interrupted);
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        lock(&self.0.0).now[self.1 as usize] -= 1;
    }
}

/// A session's caller, whose cells are counted.
pub struct CountedCaller<'c> {
    caller: &'c mut dyn Caller,
    counts: &'c Counts,
    /// The cells that are still running, by request number.
    cells: Vec<(u64, Counted<'c>)>,
}

impl<'c> CountedCaller<'c> {
    pub fn new(caller: &'c mut dyn Caller, counts: &'c Counts) -> Self {
        Self {
            caller,
            counts,
            cells: Vec::new(),
        }
    }

    /// Removes an answered cell, and returns whether there was one. Other requests are not counted.
    fn take_cell(&mut self, id: u64) -> bool {
        let before = self.cells.len();
        self.cells.retain(|(cell, _)| *cell != id);
        self.cells.len() < before
    }
}

impl Caller for CountedCaller<'_> {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.caller.as_fd()
    }

    fn unsent(&self) -> usize {
        self.caller.unsent()
    }

    fn flush(&mut self) {
        self.caller.flush();
    }

    fn recv(&mut self) -> CallerEvent {
        let event = self.caller.recv();
        if let CallerEvent::Request(ClientRequest::Cell(cell), _) = &event {
            let running = self.counts.begin(Activity::Running);
            self.cells.push((cell.id, running));
        }
        event
    }

    fn answer(&mut self, answer: ClientEvent, payload: Payload) {
        if let ClientEvent::Outcome(ended) = &answer
            && self.take_cell(ended.id)
        {
            self.counts.end_as(ended.outcome.0.status());
        }
        self.caller.answer(answer, payload);
    }

    fn takes_count(&mut self) -> bool {
        self.caller.takes_count()
    }

    fn note_between_cells(&mut self, used: Duration) {
        self.caller.note_between_cells(used);
    }

    fn refuse(&mut self, id: Option<u64>, refusal: Refusal) {
        if let Some(id) = id
            && self.take_cell(id)
        {
            self.counts.refuse(refusal.kind());
        }
        self.caller.refuse(id, refusal);
    }
}
