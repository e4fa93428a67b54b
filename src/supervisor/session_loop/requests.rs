//! Handles a caller's requests to its session.

use std::time::{Duration, Instant};

use super::SessionExit;
use super::caller::{Caller, Payload};
use super::cell::{RunningCell, Streaming};
use super::clocks::WallClock;
use super::life::WorkerLife;
use super::refusal::Refusal;
use super::worker_io::WorkerIo;
use crate::outcome::LimitName;
use crate::protocol::Request;
use crate::protocol::caller::{Cell, ClientRequest};
use crate::protocol::message::SourceKind;
use crate::supervisor::clock::time_of;
use crate::supervisor::drain::Stream;
use crate::supervisor::ending::Stop;
use crate::supervisor::run::Pace;
use crate::supervisor::snapshot::Medium;

/// A cell that starts within this time after the previous cell reuses the counts from that cell's end.
const COUNTS_REUSED_FOR: Duration = Duration::from_millis(20);

impl<W: WorkerIo> WorkerLife<'_, W> {
    pub(super) fn handle(
        &mut self,
        request: ClientRequest,
        payload: Payload,
        now: Instant,
        caller: &mut dyn Caller,
    ) -> Option<SessionExit> {
        let id = request.id();
        if let Some(refusal) = self.refusal(&request, now) {
            caller.refuse(id, refusal);
            return None;
        }
        match request {
            ClientRequest::Cell(cell) => self.begin_cell(cell, payload, now, caller),
            ClientRequest::Set(set) => {
                self.begin(set.id, None, &Request::Set(set), payload, now, caller);
            }
            ClientRequest::Tools(tools) => {
                self.begin(tools.id, None, &Request::Tools(tools), payload, now, caller);
            }
            ClientRequest::Snapshot { id } => {
                self.begin_snapshot(id, Medium::Memory, now, caller);
            }
            ClientRequest::Pause { id } => self.begin_snapshot(id, Medium::Disk, now, caller),
            ClientRequest::Return(answer) => self.return_to_guest(answer, payload, now, caller),
            ClientRequest::Decide { question, allowed } => self.decide(question, allowed, caller),
            ClientRequest::Interrupt if self.cell.is_none() => {}
            ClientRequest::Interrupt => self.interrupt(Stop::Cancelled, now),
            ClientRequest::Restart { id } => return Some(SessionExit::Restart(id)),
            ClientRequest::Rollback { id, snapshot } => {
                return Some(SessionExit::Rollback { id, snapshot });
            }
            ClientRequest::Close => return Some(SessionExit::Closed),
            ClientRequest::File(request) => {
                self.note_use(now);
                self.file(&request, caller);
            }
            ClientRequest::Open(_) => {
                let why =
                    "this connection already has a session: open another connection for a new one";
                caller.refuse(None, Refusal::Protocol(why.into()));
            }
            ClientRequest::Discard { .. } | ClientRequest::Save { .. } => {
                let why = "this connection has a session: save or discard snapshots on another one";
                caller.refuse(None, Refusal::Protocol(why.into()));
            }
            ClientRequest::Program(_)
            | ClientRequest::Attach { .. }
            | ClientRequest::Programs { .. }
            | ClientRequest::Watch(_)
            | ClientRequest::Input { .. }
            | ClientRequest::Signal { .. }
            | ClientRequest::Size { .. } => {
                let why =
                    "this connection has a session: open another one for a program or a watch";
                caller.refuse(id, Refusal::Protocol(why.into()));
            }
            ClientRequest::Map(_) | ClientRequest::Task(_) | ClientRequest::End => {
                let why = "this connection has a session: open another one for a batch";
                caller.refuse(id, Refusal::Protocol(why.into()));
            }
        }
        // Not in `begin`, which also starts requests of the supervisor itself: they have no caller to report to.
        self.report_time_between_cells(caller);
        None
    }

    /// Returns why a request must be refused now.
    fn refusal(&mut self, request: &ClientRequest, now: Instant) -> Option<Refusal> {
        let is_answered_by_worker = match request {
            ClientRequest::Cell(_)
            | ClientRequest::Set { .. }
            | ClientRequest::Tools { .. }
            | ClientRequest::Snapshot { .. }
            | ClientRequest::Pause { .. } => true,
            ClientRequest::Restart { .. } | ClientRequest::Rollback { .. } => false,
            _ => return None,
        };
        if self.cell.is_some() {
            return Some(Refusal::Busy);
        }
        self.note_use(now);
        // A request to a worker that is ending is refused with the reason of that end.
        let is_refused = is_answered_by_worker && self.reap_until.is_some();
        is_refused.then(|| Refusal::Ended(self.reason()))
    }

    fn begin_cell(
        &mut self,
        requested: Cell,
        source: Payload,
        now: Instant,
        caller: &mut dyn Caller,
    ) {
        let id = requested.id;
        let own = requested.wall.map(time_of);
        if own == Some(None) {
            caller.refuse(Some(id), Refusal::NoWall);
            return;
        }
        let wall = own.flatten();
        if requested.filename.contains('\0') {
            caller.refuse(Some(id), Refusal::NulInFilename);
            return;
        }
        let request = Request::Cell {
            terminal: None,
            id,
            filename: requested.filename,
            argv: requested.argv,
            last: requested.last,
            then: requested.then,
            // The caller has decoded its files.
            source: SourceKind::Text,
        };
        self.io.note_closed_files();
        self.cells += 1;
        self.begin(id, wall, &request, source, now, caller);
        match &mut self.cell {
            Some(cell) => {
                cell.then = requested.then;
                if requested.stream {
                    cell.streaming = Streaming::Immediate;
                    // Output that was printed since the last cell.
                    for stream in [Stream::Stdout, Stream::Stderr] {
                        caller.output(id, stream, self.io.captured(stream));
                    }
                }
            }
            None => self.cells -= 1,
        }
    }

    /// Sends a request to the worker and makes it the running cell, or refuses it. `wall` is the request's own wall
    /// limit.
    pub(super) fn begin(
        &mut self,
        id: u64,
        wall: Option<Duration>,
        request: &Request,
        payload: Payload,
        now: Instant,
        caller: &mut dyn Caller,
    ) {
        let mut bytes = Vec::new();
        if let Err(error) = request.encode_into(&payload.bytes, &mut bytes) {
            caller.refuse(Some(id), error.into());
            return;
        }
        // Count again, so that code that kept running after the last cell is not charged to this one. Right after a
        // cell, such code had no time to run.
        let before = match now.duration_since(self.waiting_since) {
            short if self.cells > 1 && short < COUNTS_REUSED_FOR => self.counted,
            _ => {
                self.count_between_cells();
                self.counted
            }
        };
        if self.io.has_lost_cgroup(&before) {
            let why = "its cgroup was removed from outside, and nothing held it to its limits";
            caller.refuse(Some(id), Refusal::Ended(why.to_owned()));
            self.end_between_cells(why);
            return;
        }
        let (terms, session_limits) = (self.session_terms(), self.terms.limits);
        let limits = wall.map_or(session_limits, |wall| {
            let cpu = session_limits.cpu_within(wall, terms.cpu_rule);
            let limits = session_limits.with_time(LimitName::Wall, wall);
            limits.with_time(LimitName::Cpu, cpu)
        });
        let clock = self.wall_clock(now, wall.unwrap_or(limits.wall()));
        self.cell = Some(RunningCell::new(id, now, clock, limits, before));
        self.measured_us = 0;
        self.io
            .restart_watch(Pace::Running, now, before.cpu_us, limits.cpu());
        self.io.send(bytes, payload.passed);
    }

    /// Handles the start or end of programs. Programs that start between two cells get a CPU limit of their own, as a
    /// cell does.
    pub(super) fn on_programs(&mut self, now: Instant) {
        self.note_use(now);
        if self.cell.is_none() && self.reap_until.is_none() {
            self.count_between_cells();
            self.watch_between_cells(now);
        }
    }

    /// Starts to watch a worker that waits for its next cell.
    pub(super) fn watch_between_cells(&mut self, now: Instant) {
        self.waiting_since = now;
        self.watch_as_waiting(now);
    }

    /// Watches a worker without a running cell, and does not restart the session's idle time.
    pub(super) fn watch_as_waiting(&mut self, now: Instant) {
        let pace = if self.io.runs_programs() {
            Pace::Running
        } else {
            Pace::Waiting
        };
        let cpu = self.terms.limits.cpu();
        self.measured_us = 0;
        self.io.restart_watch(pace, now, self.counted.cpu_us, cpu);
    }

    /// Returns the wall clock of a request that starts now.
    pub(super) fn wall_clock(&self, now: Instant, wall: Duration) -> WallClock {
        let pause_budget = self.session_terms().tool_time.of_cell(wall);
        WallClock::new(now, wall, pause_budget, self.age_deadline())
    }
}
