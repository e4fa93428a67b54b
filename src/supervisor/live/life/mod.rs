//! The life of a worker as a state machine: events in, actions on the worker and on the caller out.
//!
//! It reads no clock and no descriptor. [`WorkerLoop`](super::worker_loop::WorkerLoop) waits for the
//! events; each comes with its time. What the machine does to the worker goes through [`WorkerIo`], so
//! that its tests need no kernel.

use std::mem;
use std::path::Path;
use std::time::{Duration, Instant};

use super::caller::{Caller, CallerEvent};
use super::cell::{CellUnderWay, Streaming};
use super::clocks::{LAST_MOMENTS, WallClock};
use super::pausing::{PAUSE, Pause};
use super::worker_io::WorkerIo;
use super::{Purpose, Refusal, SessionExit, SessionTerms};
use crate::outcome::{Enforced, LimitName, Limits, Mechanism, PolicyIdentity};
use crate::plan::Grants;
use crate::protocol::message::{AfterCell, WorkerMode};
use crate::protocol::{MessageError, Request, VERSION};
use crate::supervisor::cgroup::Counts;
use crate::supervisor::drain::{Drained, Stream};
use crate::supervisor::ending::{Kind, Stop};
use crate::supervisor::error::SupervisorError;
use crate::supervisor::run::{AskHost, Fate, ONLY_REQUEST, Pace};
use crate::supervisor::snapshot::SnapshotRefusal;
use sandfork_jail::control::{Exit, ExitStatus};
use sandfork_jail::program::ProcessMemory;

/// How long, from the start of a cell and at the end of a run, descriptors that can wait are not waited
/// for. A short cell prints, answers and ends within it, and closes one descriptor after another. Each of
/// these would wake the supervisor.
const QUIET: Duration = Duration::from_millis(2);

/// How long, from a run's result or exit, the report of the exit is not waited for alone: on a busy
/// machine the end of the worker follows later, but it follows.
pub const REPORT_WAITS: Duration = Duration::from_millis(10);

/// What holds for the worker's whole life.
#[derive(Clone, Copy, Debug)]
pub struct LifeTerms<'a> {
    /// What the worker is used for.
    pub purpose: Purpose,
    /// The limits of each cell.
    pub limits: Limits,
    /// The policy's name and digest.
    pub policy: &'a PolicyIdentity,
    /// The layers that hold.
    pub enforced: &'a Enforced,
    /// What the policy grants.
    pub grants: &'a Grants,
    /// The guest's own directory on the host, if it has no file system of its own.
    pub own: Option<&'a Path>,
    /// Whether the host is asked which paths it has.
    pub ask_host: AskHost,
    /// What refuses the guest more memory.
    pub memory: ProcessMemory,
}

/// A worker that serves, and all that is kept of it.
pub struct WorkerLife<'a, W> {
    pub(super) terms: LifeTerms<'a>,
    pub(super) io: W,
    /// Whether the worker's frames are still read.
    pub(super) data_open: bool,
    pub(super) greeted: bool,
    pub(super) cell: Option<CellUnderWay>,
    /// The cgroup's counts when the last cell ended.
    pub(super) counted: Counts,
    /// The processor time since then that was measured and counted where no cgroup counts it, microseconds.
    pub(super) measured_us: u64,
    /// The processor time that was used between cells, and of which the caller was not told.
    pub(super) between_cells: Duration,
    /// The number of cells so far.
    pub(super) cells: u64,
    pub(super) born: Instant,
    pub(super) waiting_since: Instant,
    /// When the session was used last.
    pub(super) used: Instant,
    pub(super) pause: Pause,
    /// Why the supervisor ended the worker, if it did.
    pub(super) stop: Option<Stop>,
    /// The reason in `stop`, as part of a sentence, if no cell reports it.
    pub(super) why: Option<String>,
    /// The fault of the host for which the supervisor ended the worker.
    pub(super) failure: Option<SupervisorError>,
    /// When to stop waiting for a killed worker.
    pub(super) reap_until: Option<Instant>,
    pub(super) exit: Option<Exit>,
    pub(super) exited: Option<Instant>,
    /// When to look again whether the worker, which has closed its link, is ending.
    pub(super) hung_up: Option<Instant>,
}

/// A moment in which fewer descriptors are waited for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Quiet {
    /// The cell has just started: its output can wait.
    Starting,
    /// The run has sent its result, or its process has ended: only the end of the worker cannot wait.
    Ending,
}

impl<'a, W: WorkerIo> WorkerLife<'a, W> {
    /// Begins with a worker that has received nothing yet.
    pub fn new(terms: &LifeTerms<'a>, io: W, now: Instant) -> Self {
        Self {
            terms: *terms,
            io,
            data_open: true,
            greeted: false,
            cell: None,
            counted: Counts::default(),
            measured_us: 0,
            between_cells: Duration::ZERO,
            cells: 0,
            born: now,
            waiting_since: now,
            used: now,
            pause: Pause::default(),
            stop: None,
            why: None,
            failure: None,
            reap_until: None,
            exit: None,
            exited: None,
            hung_up: None,
        }
    }

    /// Greets the worker of a session. The message of a run contains its greeting.
    pub fn greet(&mut self, now: Instant) -> Result<(), MessageError> {
        let mut hello = Vec::new();
        Request::Hello {
            version: VERSION,
            serves: WorkerMode::Session,
        }
        .encode_into(&[], &mut hello)?;
        self.io.send(hello, None);
        self.io.hand_over_summons();
        self.io
            .watch_anew(Pace::Waiting, now, None, self.terms.limits.cpu());
        Ok(())
    }

    /// Starts the one cell of a run.
    pub fn start_run(&mut self, message: Vec<u8>, now: Instant) {
        let clock = WallClock::new(now, self.terms.limits.wall(), Duration::ZERO, None);
        let (id, limits) = (ONLY_REQUEST, self.terms.limits);
        let mut cell = CellUnderWay::new(id, now, clock, limits, Counts::default());
        cell.streaming = Streaming::AsItComes;
        cell.then = AfterCell::End;
        self.cell = Some(cell);
        self.io.send(message, None);
    }

    /// Whether the first cell is over.
    pub fn has_finished_a_cell(&self) -> bool {
        self.cells > 0 && self.cell.is_none()
    }

    /// What is quiet now, and until when.
    pub fn quiet(&self, now: Instant) -> Option<(Quiet, Instant)> {
        let cell = self.cell.as_ref();
        let is_run = matches!(self.terms.purpose, Purpose::Run(_));
        let answered = cell.and_then(|cell| cell.answered).filter(|_| is_run);
        let ending = self.exited.or(answered).map(|at| (Quiet::Ending, at));
        let starting = || cell.map(|cell| (Quiet::Starting, cell.started));
        let (quiet, since) = ending.or_else(starting)?;
        let until = since + QUIET;
        (now < until).then_some((quiet, until))
    }

    /// Until when the report of the exit can wait for the end of file after it.
    pub fn report_waits(&self, now: Instant) -> Option<Instant> {
        let is_run = matches!(self.terms.purpose, Purpose::Run(_));
        let answered = self.cell.as_ref().and_then(|cell| cell.answered);
        let until = self.exited.or(answered.filter(|_| is_run))? + REPORT_WAITS;
        // A limit that is due after the exit must not be reported in place of the exit.
        let is_undisturbed = self.next_event().is_none_or(|due| due >= until);
        (now < until && is_undisturbed).then_some(until)
    }

    /// The guest's output can be read. Output between two cells belongs to the next one.
    pub fn on_output(&mut self, stream: Stream, now: Instant, caller: &mut dyn Caller) {
        let drained = match &self.cell {
            Some(cell) if cell.streaming == Streaming::AsItComes => {
                let id = cell.id;
                let mut pass_on = |bytes: &[u8]| caller.output(id, stream, bytes);
                self.io.drain(stream, &mut pass_on)
            }
            _ => self.io.drain(stream, &mut |_| {}),
        };
        if drained == Drained::WithinCap {
            return;
        }
        match &mut self.cell {
            Some(cell) if self.exited.is_some() => cell.has_printed_too_much(now),
            _ => self.interrupt(Stop::output(), now),
        }
    }

    /// The main process has ended. Processes that it left behind may keep the worker alive.
    pub fn on_exit(&mut self, exit: Exit, at: Instant) {
        self.exit = Some(exit);
        // What it sent before its end may have been read after that.
        let answered = self.cell.as_ref().and_then(|cell| cell.answered);
        self.exited = Some(answered.map_or(at, |answered| answered.max(at)));
        self.expect_the_end();
    }

    /// The worker has closed its link, which it may only do at its end.
    pub fn on_link_end(&mut self, now: Instant) {
        self.data_open = false;
        let has_answered = |cell: &CellUnderWay| cell.result.is_some();
        let may_close = self.terms.purpose == Purpose::Run(Kind::Program)
            || self.cell.as_ref().is_some_and(has_answered);
        if !may_close {
            self.hung_up = Some(now + LAST_MOMENTS);
        }
    }

    /// The link cannot be read for a fault of the host: any report of the cell would be a guess.
    pub fn on_fault(&mut self, fault: SupervisorError) {
        self.data_open = false;
        self.failure = Some(fault);
        self.io.kill();
        self.expect_the_end();
    }

    /// The worker broke the protocol: it is ended.
    pub fn on_violation(&mut self, how: String) {
        self.data_open = false;
        self.end(Stop::Violation(how));
    }

    /// The caller can be read: handles what it has sent so far.
    pub fn on_caller(&mut self, now: Instant, caller: &mut dyn Caller) -> Option<SessionExit> {
        loop {
            match caller.recv() {
                CallerEvent::Nothing => {
                    if caller.takes_count() {
                        self.count_now(caller);
                    }
                    return None;
                }
                CallerEvent::Gone => return Some(SessionExit::Gone),
                CallerEvent::Malformed(how) => {
                    caller.refuse(None, Refusal::Protocol(how));
                    return Some(SessionExit::Gone);
                }
                CallerEvent::Request(request, payload) => {
                    let left = self.handle(request, payload, now, caller);
                    if left.is_some() {
                        return left;
                    }
                }
            }
        }
    }

    /// Counts what was used since the last cell ended, of which no outcome tells.
    pub(super) fn count_between_cells(&mut self) {
        let counts = self.io.counts();
        let counted = counts.since(&self.counted).cpu_us;
        let used = counted.unwrap_or_else(|| {
            let measured = self.io.measured().cpu_us;
            measured - mem::replace(&mut self.measured_us, measured).min(measured)
        });
        self.between_cells += Duration::from_micros(used);
        self.counted = counts;
    }

    /// Counts it for a caller that has asked. A cell counts for itself, and so does the end of the worker.
    fn count_now(&mut self, caller: &mut dyn Caller) {
        if self.cell.is_none() && self.reap_until.is_none() {
            let before = self.counted;
            self.count_between_cells();
            // What else was counted since the last cell may be the reason of the worker's end.
            self.counted = Counts {
                cpu_us: self.counted.cpu_us,
                ..before
            };
            self.tell_of_time_between_cells(caller);
        }
    }

    /// Tells the caller of the time that was counted between cells.
    pub fn tell_of_time_between_cells(&mut self, caller: &mut dyn Caller) {
        caller.note_between_cells(mem::take(&mut self.between_cells));
    }

    /// The loop ends, and the worker does not, or not by itself.
    pub fn on_leaving(&mut self, caller: &mut dyn Caller) {
        if self.cell.is_none() {
            self.count_between_cells();
        }
        self.refuse_pause(SnapshotRefusal::Changed.into(), caller);
    }

    /// Nothing is left of the worker: reports the end of its last cell, then that of the session.
    pub fn on_end(&mut self, now: Instant, caller: &mut dyn Caller) -> SessionExit {
        let why = self.report_end(now, caller);
        // The worker may have ended just after it was copied.
        self.refuse_pause(Refusal::Ended(why.clone()), caller);
        SessionExit::Ended(why)
    }

    /// Answers the last cell, and returns why the session has ended, as part of a sentence.
    fn report_end(&mut self, now: Instant, caller: &mut dyn Caller) -> String {
        let lost = self.is_lost().then_some(SupervisorError::RunLost);
        // No one waits for a pause that was not asked for.
        self.cell.take_if(|cell| cell.id == PAUSE);
        let why = match self.failure.take() {
            Some(failure) => Some((failure.to_string(), failure)),
            None => lost.map(|lost| ("its zygote was ended from outside".to_owned(), lost)),
        };
        if let Some((why, failure)) = why {
            if let Some(cell) = self.cell.take() {
                caller.refuse(Some(cell.id), failure.into());
            }
            return why;
        }
        if let Some(cell) = self.cell.take() {
            let why = self.finish(cell, None, Fate::Ended, now, caller);
            format!("its last cell ended with `{why}`")
        } else {
            let why = self.reason();
            self.count_between_cells();
            why
        }
    }

    /// Why a worker without a cell ends, as part of a sentence.
    pub(super) fn reason(&mut self) -> String {
        if let Some(why) = &self.why {
            return why.clone();
        }
        if let Some(failure) = &self.failure {
            return failure.to_string();
        }
        let counted = self.counted;
        match self.exit.map(|exit| exit.status) {
            Some(ExitStatus::Signal(libc::SIGKILL))
                if self.io.counts().since(&counted).oom_kills > 0 =>
            {
                between_cells(&Stop::limit(LimitName::Memory, Mechanism::Cgroup))
            }
            Some(ExitStatus::Signal(signal)) => {
                format!("its process was ended by signal {signal} between two cells")
            }
            Some(ExitStatus::Code(code)) => {
                format!("its process exited with {code} between two cells")
            }
            None => "it was ended".to_owned(),
        }
    }

    /// Whether the worker is gone without having ended by itself or by the supervisor's will.
    pub(super) fn is_lost(&self) -> bool {
        self.exit.is_none() && self.stop.is_none()
    }

    /// Sets how long to wait until nothing is left of a worker that was killed or has lost its main
    /// process.
    pub(super) fn expect_the_end(&mut self) {
        let ends_by = self.io.ends_by();
        self.reap_until.get_or_insert(ends_by);
    }

    /// The terms of the session. A run waits for no cell and does not age.
    pub(super) fn session_terms(&self) -> SessionTerms {
        match self.terms.purpose {
            Purpose::Session(terms) => terms,
            Purpose::Run(_) => SessionTerms::default(),
        }
    }
}

/// Why a worker is ended that has no cell, as part of a sentence.
pub(super) fn between_cells(stop: &Stop) -> String {
    format!("what it left running between two cells {}", stop.in_words())
}

#[cfg(test)]
mod tests;
