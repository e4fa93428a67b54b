//! The event loop of one worker: polls the worker's descriptors and its caller, and dispatches the events to
//! [`WorkerLife`].

use std::ops::ControlFlow;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use nix::errno::Errno;
use nix::poll::PollFlags;

use super::adaptive_poll::AdaptivePoll;
use super::caller::{Caller, readable_or_writable};
use super::cell::StateRequest;
use super::life::{LifeTerms, Quiet, REPORT_DELAY, WorkerLife};
use super::state::Beginning;
use super::worker_io::JailedWorker;
use super::{Purpose, SessionExit};
use crate::supervisor::clock;
use crate::supervisor::descriptors::recv_report;
use crate::supervisor::drain::Stream;
use crate::supervisor::egress::WorkerNetwork;
use crate::supervisor::error::{SupervisorError, While};
use crate::supervisor::link::{LinkError, Received};
use crate::supervisor::programs::ProgramServer;
use crate::supervisor::run::{Deferred, RunContext};
use crate::supervisor::session_dir::SessionDirectory;
use crate::supervisor::stop::Stoppable;
use crate::supervisor::verified_worker::VerifiedWorker;
use crate::supervisor::wait::is_readable;
use sandfork_jail::control::{Exit, FromMonitor};

/// The most reads of the data socket after the main process has ended. Together they exceed the socket's buffer.
const MAX_FINAL_READS: usize = 16;

/// The limit on bytes of events that the caller has not read. Beyond it the supervisor stops reading from the worker or
/// the program, which then blocks like a program whose output pipe is full.
pub const BACKLOG: usize = 1 << 20;

/// The limit on queued messages that the worker has not read. Beyond it the supervisor stops reading from the worker,
/// because a guest may call tools and never read a result.
const MAX_UNREAD: usize = 64;

/// The limit on the bytes of those messages. It exceeds the size of any single message.
const MAX_UNREAD_BYTES: usize = 32 << 20;

/// The event loop of one worker.
pub struct WorkerLoop<'a> {
    pub(super) state: WorkerLife<'a, JailedWorker<'a>>,
    monitor_open: bool,
    for_worker: AdaptivePoll,
    for_caller: AdaptivePoll,
    _stoppable: Stoppable,
}

impl<'a> WorkerLoop<'a> {
    /// Prepares to serve a worker that is ready in its jail. Sends a session's worker its greeting, or starts to
    /// restore an image into it.
    ///
    /// # Errors
    ///
    /// When the worker's descriptors cannot be prepared, or its first message cannot be made.
    pub fn new(
        context: &'a RunContext<'a>,
        verified: &'a VerifiedWorker,
        purpose: Purpose,
        beginning: Beginning,
    ) -> Result<Self, SupervisorError> {
        let worker = JailedWorker::new(context, verified)?;
        let stoppable = Stoppable::new(&verified.worker);
        let now = clock::now();
        let terms = LifeTerms {
            purpose,
            limits: context.limits,
            policy: context.policy,
            enforced: &verified.enforced,
            grants: context.grants,
            own: verified.session.as_ref().map(SessionDirectory::path),
            ask_host: context.ask_host,
            memory: context.jail.worker.memory,
        };
        let mut state = WorkerLife::new(&terms, worker, now);
        if let Purpose::Session(_) = purpose {
            match beginning {
                Beginning::Fresh => state.greet(now)?,
                Beginning::State(image) => {
                    state.begin_restored(image, StateRequest::Replaced, now)?;
                }
                Beginning::Trial(image) => state.begin_restored(image, StateRequest::Tried, now)?,
                Beginning::Restored(image) => {
                    state.io.base_image = Arc::downgrade(&image);
                    state.continue_restored(image.cells(), now);
                }
                Beginning::Resumed(record) => state.resume(record, now),
            }
            // The files for joining the cgroup, and those of its limits, are not needed once the worker is forked and
            // verified.
            if let Some(cgroup) = &verified.cgroup {
                cgroup.settle();
            }
        }
        Ok(Self {
            state,
            monitor_open: true,
            for_worker: AdaptivePoll::default(),
            for_caller: AdaptivePoll::default(),
            _stoppable: stoppable,
        })
    }

    /// Serves until the worker is gone, which returns `None`, or until the caller disconnects or has no more use for
    /// this worker.
    pub(super) fn until_gone(
        &mut self,
        caller: &mut dyn Caller,
        mut later: Option<Deferred>,
    ) -> Result<Option<SessionExit>, SupervisorError> {
        let mut exit = self.state.on_caller(clock::now(), caller);
        while exit.is_none() {
            let due = later.as_ref().map(|later| later.due);
            match self.turn(caller, due)? {
                ControlFlow::Break(None) => return Ok(None),
                ControlFlow::Break(left) => exit = left,
                // Requests that arrived while the session was copied come first: they may cancel the pause.
                ControlFlow::Continue(()) if self.state.is_paused() => {
                    exit = self.state.on_caller(clock::now(), caller);
                    exit = exit.or_else(|| {
                        let paused = self.state.take_paused(clock::now(), caller)?;
                        Some(SessionExit::Paused(Box::new(paused)))
                    });
                }
                ControlFlow::Continue(()) => {}
            }
            let is_over = self.state.has_finished_a_cell();
            let now = clock::now();
            later = later.filter(|later| !is_over && !later.is_due(now));
        }
        Ok(exit)
    }

    /// Waits for events until `due` at the latest, and handles them. Breaks with the exit when the caller leaves, and
    /// with `None` when the worker is gone.
    pub(super) fn turn(
        &mut self,
        caller: &mut dyn Caller,
        due: Option<Instant>,
    ) -> Result<ControlFlow<Option<SessionExit>>, SupervisorError> {
        let [
            monitor,
            data,
            stdout,
            stderr,
            from_caller,
            forwarded,
            network,
            bell,
            reports,
        ] = self.wait(caller, due).when("wait for the worker")?;
        caller.flush();
        // Frames first, so that a worker that breaks the protocol is killed before more of its output is read.
        if is_readable(data) {
            self.read_frames(caller);
        }
        if data.contains(PollFlags::POLLOUT) {
            self.state.io.link.flush();
        }
        for (stream, found) in [(Stream::Stdout, stdout), (Stream::Stderr, stderr)] {
            if is_readable(found) {
                self.state.on_output(stream, clock::now(), caller);
            }
        }
        if is_readable(forwarded) {
            // The guest pays for this time.
            let spent = self.state.io.forwarded.answer(&self.state.io.watch);
            self.state.io.watch.charge(spent);
        }
        if is_readable(network) {
            self.on_network_ready(caller);
        }
        if is_readable(bell) || !reports.is_empty() {
            self.on_programs_ready([bell, reports], caller);
        }
        if !monitor.is_empty() {
            self.read_monitor(monitor, caller)?;
        }
        let now = clock::now();
        self.state.on_time(now);
        let programs = self.state.io.programs.as_mut();
        if let Some(Err(how)) = programs.map(|programs| programs.on_time(now)) {
            self.state.on_violation(how);
        }
        let reap_expired = self.state.reap_until.is_some_and(|until| now >= until);
        if !self.monitor_open || reap_expired {
            return Ok(ControlFlow::Break(None));
        }
        // If a pause has just begun, the caller's requests stay unread: they would be refused as busy.
        if is_readable(from_caller)
            && !self.state.is_pausing()
            && let Some(exit) = self.state.on_caller(now, caller)
        {
            return Ok(ControlFlow::Break(Some(exit)));
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Waits until `due` at the latest. Returns the poll(2) events of the monitor, the link, stdout, stderr, the
    /// caller, the seccomp listener, the egress link, the program queue's bell and the program reports.
    fn wait(&mut self, caller: &dyn Caller, due: Option<Instant>) -> Result<[PollFlags; 9], Errno> {
        let state = &self.state;
        let io = &state.io;
        let now = clock::now();
        let (quiet, quiet_until) = state.quiet(now).unzip();
        let is_ending = quiet == Some(Quiet::Ending);
        // poll(2) reports a hang-up even if no event is requested.
        let report_deferred_until = state.report_deferred_until(now);
        let monitor_events =
            report_deferred_until.map_or(PollFlags::POLLIN, |_| PollFlags::empty());
        let flowing = caller.unsent() < BACKLOG;
        let pipe = |stream| {
            let pipe = io.output.pipe(stream);
            let pipe = pipe.filter(|_| flowing && quiet.is_none())?;
            Some((pipe, PollFlags::POLLIN))
        };
        let worker_reads =
            io.link.unsent_frames() < MAX_UNREAD && io.link.unsent < MAX_UNREAD_BYTES;
        let may_receive = flowing && worker_reads && state.has_room_for_calls();
        let mut data_events = readable_or_writable(io.link.unsent);
        data_events.set(PollFlags::POLLIN, may_receive);
        let data = state.data_open && !data_events.is_empty() && !is_ending;
        // Once the worker is ending, program requests wait for the reason, with which they are then closed.
        let programs = io.programs.as_ref().filter(|_| state.reap_until.is_none());
        let programs_due = programs.and_then(ProgramServer::next_event);
        let until = [
            state.next_event(),
            due,
            quiet_until,
            report_deferred_until,
            programs_due,
            io.forwarded.paused_until(now),
        ];
        let until = until.into_iter().flatten().min();
        let (poll, since) = match &state.cell {
            Some(cell) => (&mut self.for_worker, cell.started),
            None => (&mut self.for_caller, state.waiting_since),
        };
        let mut found = poll.wait(
            since,
            [
                Some((io.worker().ends.monitor.as_fd(), monitor_events)),
                data.then(|| (io.link.as_fd(), data_events)),
                pipe(Stream::Stdout),
                pipe(Stream::Stderr),
                state.caller_events(caller),
                io.forwarded.source(now).filter(|_| !is_ending),
                io.network.as_ref().map(|it| (it.link(), PollFlags::POLLIN)),
                programs.map(|it| (it.queue.bell(), PollFlags::POLLIN)),
                programs
                    .zip(io.starter_socket.as_ref())
                    .and_then(|(it, starter_socket)| it.source(starter_socket)),
            ],
            until,
        )?;
        if !may_receive {
            // poll(2) also reports events that were not requested, such as a hang-up.
            let [_, data, ..] = &mut found;
            *data &= PollFlags::POLLOUT;
        }
        Ok(found)
    }

    /// Handles callers' requests for programs (`bell`) and reports about running programs (`reports`).
    fn on_programs_ready(&mut self, [bell, reports]: [PollFlags; 2], caller: &mut dyn Caller) {
        let now = clock::now();
        let is_copied_or_restored = self.state.is_copied_or_restored();
        let io = &mut self.state.io;
        let Some(programs) = &mut io.programs else {
            return;
        };
        let (worker, was_busy) = (&io.verified.worker, programs.is_busy());
        // Reports first: a starter process that has ended is replaced, and must not get more requests.
        if !reports.is_empty()
            && let Some(starter_socket) = &mut io.starter_socket
            && let Err(how) = programs.on_readable(starter_socket, worker, now)
        {
            self.state.on_violation(how);
            return;
        }
        let (starter_socket, process) = (io.starter_socket.as_mut(), worker.process.as_fd());
        let has_more = is_readable(bell)
            && programs.on_bell(starter_socket, process, now, is_copied_or_restored);
        if has_more || (was_busy && !programs.is_busy()) {
            self.state.on_programs(now);
            self.state.report_time_between_cells(caller);
        }
    }

    /// Handles events of the egress link: a question about a connection, a late report, or the end of the egress
    /// process.
    fn on_network_ready(&mut self, caller: &mut dyn Caller) {
        let network = self.state.io.network.as_mut();
        match network.map(WorkerNetwork::on_readable) {
            Some(Err(error)) => {
                self.state.io.network = None;
                self.state.on_fault(error);
            }
            Some(Ok(Some(question))) => self.state.ask_caller(question, caller),
            Some(Ok(None)) | None => {}
        }
    }

    /// Reads once and dispatches the frames that arrived. Returns whether anything arrived and the link is still open.
    fn read_frames(&mut self, caller: &mut dyn Caller) -> bool {
        let now = clock::now();
        let is_run = matches!(self.state.terms.purpose, Purpose::Run(_));
        // The guest pays for this time, except while its session is copied or restored, which is not the guest's doing.
        let began = (!is_run && !self.state.is_copied_or_restored()).then(clock::thread_time);
        match self.state.io.link.receive() {
            Ok(Received::Some) => {}
            Ok(Received::Nothing) => return false,
            Ok(Received::End) => {
                self.state.on_link_end(now);
                return false;
            }
            Err(LinkError::Unreadable(errno)) => {
                let what = "read from the worker";
                self.state.on_fault(SupervisorError::System { what, errno });
                return false;
            }
            Err(error) => {
                self.state.on_violation(error.to_string());
                return false;
            }
        }
        if is_run {
            self.state.io.link.discard_passed();
        }
        while self.state.data_open
            && let Some(frame) = self.state.io.link.next()
        {
            self.state.on_frame(frame, now, caller);
        }
        if let Some(began) = began {
            // No other limit bounds the number of a session's frames: a guest may call tools that do not exist, and
            // threads that a cell left running may send frames for as long as the session waits.
            let spent = clock::thread_time().saturating_sub(began);
            self.state.io.watch.charge(spent);
        }
        self.state.data_open
    }

    /// Reads one report from the monitor, or, after a hang-up, all remaining reports until EOF.
    fn read_monitor(
        &mut self,
        events: PollFlags,
        caller: &mut dyn Caller,
    ) -> Result<(), SupervisorError> {
        loop {
            match recv_report(self.state.io.worker().ends.monitor.as_fd()) {
                Ok(Some((FromMonitor::Exited { exit, at }, _))) => self.on_exit(exit, at, caller),
                Ok(Some(_)) => {}
                Ok(None) | Err(Errno::ECONNRESET) => {
                    self.monitor_open = false;
                    self.state.io.is_gone = true;
                    self.state.io.worker().note_gone();
                    return Ok(());
                }
                Err(errno) => return Err(errno).when("read from the zygote"),
            }
            if !events.contains(PollFlags::POLLHUP) {
                return Ok(());
            }
        }
    }

    fn on_exit(&mut self, exit: Exit, at: SystemTime, caller: &mut dyn Caller) {
        let now = clock::now();
        let ago = at.elapsed().unwrap_or_default().min(REPORT_DELAY);
        self.state
            .on_exit(exit, now.checked_sub(ago).unwrap_or(now));
        // Messages sent before the exit count. A process that was left behind may keep sending, so reading stops after
        // as much as the socket's buffer can hold.
        _ = (0..MAX_FINAL_READS)
            .take_while(|_| self.state.data_open && self.read_frames(caller))
            .count();
    }
}
