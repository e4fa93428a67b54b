//! The state machine of a worker: takes events, and acts on the worker and the caller.
//!
//! The state machine reads no clock and no descriptor: [`WorkerLoop`](super::worker_loop::WorkerLoop) waits for events
//! and passes each one with its time. All actions on the worker go through [`WorkerIo`], so that the tests need no
//! kernel.

use std::mem;
use std::path::Path;
use std::time::{Duration, Instant};

use super::caller::{Caller, CallerEvent};
use super::cell::{RunningCell, Streaming};
use super::clocks::{EXIT_LAG, WallClock};
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

/// The period at the start of a cell and at the end of a run in which descriptors that can wait are not polled. A short
/// cell prints, sends its result, exits and closes its descriptors one by one within this period, and each of these
/// events would wake the supervisor.
const QUIET: Duration = Duration::from_millis(2);

/// The period after a run's result or exit in which the exit report alone does not wake the supervisor: it waits for
/// the EOF that follows the report. On a busy machine the EOF comes later than this, but it comes.
pub const REPORT_DELAY: Duration = Duration::from_millis(10);

/// The parameters that are fixed for a worker's whole life.
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
    /// The guest's directory on the host, if the guest has no private file system.
    pub own: Option<&'a Path>,
    /// Whether denials say which of the paths exist on the host.
    pub ask_host: AskHost,
    /// The mechanism that limits the guest's memory.
    pub memory: ProcessMemory,
}

/// The state of a worker that is being served.
pub struct WorkerLife<'a, W> {
    pub(super) terms: LifeTerms<'a>,
    pub(super) io: W,
    /// Whether the worker's frames are still read.
    pub(super) data_open: bool,
    pub(super) greeted: bool,
    pub(super) cell: Option<RunningCell>,
    /// The cgroup's counts when the last cell ended.
    pub(super) counted: Counts,
    /// The CPU time since then that was measured without a cgroup and has been added to `between_cells`, microseconds.
    pub(super) measured_us: u64,
    /// The CPU time that was used between cells and has not been reported to the caller.
    pub(super) between_cells: Duration,
    /// The number of cells so far.
    pub(super) cells: u64,
    pub(super) born: Instant,
    pub(super) waiting_since: Instant,
    /// When the session was last used.
    pub(super) used: Instant,
    pub(super) pause: Pause,
    /// Why the supervisor ended the worker, if it did.
    pub(super) stop: Option<Stop>,
    /// The reason for `stop` as part of a sentence, if no cell's outcome reports it.
    pub(super) why: Option<String>,
    /// The host fault because of which the supervisor killed the worker.
    pub(super) failure: Option<SupervisorError>,
    /// The deadline for a killed or exited worker to be gone.
    pub(super) reap_until: Option<Instant>,
    pub(super) exit: Option<Exit>,
    pub(super) exited: Option<Instant>,
    /// When to check again whether a worker that closed its link is exiting.
    pub(super) hung_up: Option<Instant>,
}

/// A period in which fewer descriptors are polled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Quiet {
    /// The cell has just started: its output can wait.
    Starting,
    /// The run has sent its result, or its process has ended: everything but the end of the worker can wait.
    Ending,
}

impl<'a, W: WorkerIo> WorkerLife<'a, W> {
    /// Creates the state of a worker that has received nothing yet.
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

    /// Sends a session's worker its greeting. The message of a run includes a greeting.
    pub fn greet(&mut self, now: Instant) -> Result<(), MessageError> {
        let mut hello = Vec::new();
        Request::Hello {
            version: VERSION,
            serves: WorkerMode::Session,
        }
        .encode_into(&[], &mut hello)?;
        self.io.send(hello, None);
        self.io.send_starter_socket();
        self.io
            .restart_watch(Pace::Waiting, now, None, self.terms.limits.cpu());
        Ok(())
    }

    /// Starts the one cell of a run.
    pub fn start_run(&mut self, message: Vec<u8>, now: Instant) {
        let clock = WallClock::new(now, self.terms.limits.wall(), Duration::ZERO, None);
        let (id, limits) = (ONLY_REQUEST, self.terms.limits);
        let mut cell = RunningCell::new(id, now, clock, limits, Counts::default());
        cell.streaming = Streaming::Immediate;
        cell.then = AfterCell::End;
        self.cell = Some(cell);
        self.io.send(message, None);
    }

    /// Whether the first cell is over.
    pub fn has_finished_a_cell(&self) -> bool {
        self.cells > 0 && self.cell.is_none()
    }

    /// Returns the current quiet period and its end, if there is one.
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

    /// Returns until when the exit report can stay unread, to be read together with the EOF that follows it.
    pub fn report_deferred_until(&self, now: Instant) -> Option<Instant> {
        let is_run = matches!(self.terms.purpose, Purpose::Run(_));
        let answered = self.cell.as_ref().and_then(|cell| cell.answered);
        let until = self.exited.or(answered.filter(|_| is_run))? + REPORT_DELAY;
        // A limit that becomes due meanwhile would be reported in place of the exit.
        let is_undisturbed = self.next_event().is_none_or(|due| due >= until);
        (now < until && is_undisturbed).then_some(until)
    }

    /// Reads the guest's output. Output between two cells belongs to the next cell.
    pub fn on_output(&mut self, stream: Stream, now: Instant, caller: &mut dyn Caller) {
        let drained = match &self.cell {
            Some(cell) if cell.streaming == Streaming::Immediate => {
                let id = cell.id;
                let mut forward = |bytes: &[u8]| caller.output(id, stream, bytes);
                self.io.drain(stream, &mut forward)
            }
            _ => self.io.drain(stream, &mut |_| {}),
        };
        if drained == Drained::WithinCap {
            return;
        }
        match &mut self.cell {
            Some(cell) if self.exited.is_some() => cell.note_excess_output(now),
            _ => self.interrupt(Stop::output(), now),
        }
    }

    /// Handles the exit of the main process. Processes that it left behind may keep the worker alive.
    pub fn on_exit(&mut self, exit: Exit, at: Instant) {
        self.exit = Some(exit);
        // A result that was sent before the exit may have been read after it.
        let answered = self.cell.as_ref().and_then(|cell| cell.answered);
        self.exited = Some(answered.map_or(at, |answered| answered.max(at)));
        self.set_reap_deadline();
    }

    /// Handles EOF on the link. A worker may close its link only when it exits.
    pub fn on_link_end(&mut self, now: Instant) {
        self.data_open = false;
        let has_answered = |cell: &RunningCell| cell.result.is_some();
        let may_close = self.terms.purpose == Purpose::Run(Kind::Program)
            || self.cell.as_ref().is_some_and(has_answered);
        if !may_close {
            self.hung_up = Some(now + EXIT_LAG);
        }
    }

    /// Kills the worker after a fault of the host. The outcome of a running cell is then unknown, and none is reported.
    pub fn on_fault(&mut self, fault: SupervisorError) {
        self.data_open = false;
        self.failure = Some(fault);
        self.io.kill();
        self.set_reap_deadline();
    }

    /// Kills a worker that broke the protocol.
    pub fn on_violation(&mut self, how: String) {
        self.data_open = false;
        self.end(Stop::Violation(how));
    }

    /// Handles the requests that the caller has sent so far.
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

    /// Adds up the CPU time since the last cell ended, which no outcome reports.
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

    /// Reports the CPU time between cells to a caller that requested it. During a cell and at the end of the worker
    /// this time is counted elsewhere.
    fn count_now(&mut self, caller: &mut dyn Caller) {
        if self.cell.is_none() && self.reap_until.is_none() {
            let before = self.counted;
            self.count_between_cells();
            // The other counts keep their base: their increase since the last cell may explain the worker's end.
            self.counted = Counts {
                cpu_us: self.counted.cpu_us,
                ..before
            };
            self.report_time_between_cells(caller);
        }
    }

    /// Reports the CPU time that was counted between cells to the caller.
    pub fn report_time_between_cells(&mut self, caller: &mut dyn Caller) {
        caller.note_between_cells(mem::take(&mut self.between_cells));
    }

    /// Handles the end of the loop while the worker is still alive.
    pub fn on_leaving(&mut self, caller: &mut dyn Caller) {
        if self.cell.is_none() {
            self.count_between_cells();
        }
        self.refuse_pause(SnapshotRefusal::Changed.into(), caller);
    }

    /// Handles the end of the worker's last process: reports the last cell, and returns the end of the session.
    pub fn on_end(&mut self, now: Instant, caller: &mut dyn Caller) -> SessionExit {
        let why = self.report_end(now, caller);
        // The worker may have ended just after it was copied.
        self.refuse_pause(Refusal::Ended(why.clone()), caller);
        SessionExit::Ended(why)
    }

    /// Reports the last cell, and returns why the session has ended, as part of a sentence.
    fn report_end(&mut self, now: Instant, caller: &mut dyn Caller) -> String {
        let lost = self.is_lost().then_some(SupervisorError::RunLost);
        // No caller waits for a pause that the supervisor itself began.
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

    /// Returns why a worker without a running cell ends, as part of a sentence.
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

    /// Whether the worker is gone although it neither exited by itself nor was ended by the supervisor.
    pub(super) fn is_lost(&self) -> bool {
        self.exit.is_none() && self.stop.is_none()
    }

    /// Sets the deadline for the end of a worker that was killed or has lost its main process.
    pub(super) fn set_reap_deadline(&mut self) {
        let ends_by = self.io.ends_by();
        self.reap_until.get_or_insert(ends_by);
    }

    /// Returns the terms of the session. A run, which waits for no cell and has no age limit, has the defaults.
    pub(super) fn session_terms(&self) -> SessionTerms {
        match self.terms.purpose {
            Purpose::Session(terms) => terms,
            Purpose::Run(_) => SessionTerms::default(),
        }
    }
}

/// Describes, as part of a sentence, why the supervisor ends a worker that has no running cell.
pub(super) fn between_cells(stop: &Stop) -> String {
    format!("what it left running between two cells {}", stop.in_words())
}

#[cfg(test)]
mod tests;
