//! The event loop of one worker.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use super::adaptive_poll::AdaptivePoll;
use super::caller::Caller;
use super::cell::{CellUnderWay, Streaming};
use super::finish::StreamSink;
use super::{Purpose, SessionExit};
use crate::protocol::message::WorkerMode;
use crate::protocol::{FrameLimits, Request, VERSION};
use crate::supervisor::cgroup::{Counts, WorkerCgroup};
use crate::supervisor::descriptors::{recv_report, set_nonblocking};
use crate::supervisor::disconnect::Disconnect;
use crate::supervisor::drain::{Drained, Output, Stream};
use crate::supervisor::ending::Stop;
use crate::supervisor::error::{SupervisorError, While};
use crate::supervisor::link::Link;
use crate::supervisor::objects::Objects;
use crate::supervisor::run::{Deferred, Fate, Pace, RunContext, Watch};
use crate::supervisor::spawn::Worker;
use crate::supervisor::verified_worker::VerifiedWorker;
use crate::supervisor::wait::is_readable;
use sandfork_jail::control::{Exit, ExitStatus, FromMonitor};

/// How often the data socket is read after the main process ended: more than its buffer can hold.
const LAST_READS: usize = 16;

/// The most bytes of events that the caller has not read, before the supervisor stops reading from
/// the worker. The worker then blocks, like a program whose output is not read.
const BACKLOG: usize = 1 << 20;

/// The most messages that the worker has not read, before the supervisor stops reading from it: a
/// guest may call tools and never read an answer.
const UNTAKEN: usize = 64;

/// The most bytes of such messages. It exceeds the size of any one message.
const UNTAKEN_BYTES: usize = 32 << 20;

/// How long, from the start of a cell and at the end of a run, the loop does not wait for descriptors that
/// can wait. A short cell prints, answers and ends within it, and closes one descriptor after another. Each
/// of these would wake the supervisor.
const QUIET: Duration = Duration::from_millis(2);

/// The loop of one worker, and all that it keeps of that worker.
pub struct WorkerLoop<'a> {
    pub(super) context: &'a RunContext<'a>,
    pub(super) verified: &'a VerifiedWorker,
    pub(super) worker: &'a Worker,
    pub(super) purpose: Purpose,
    pub(super) watch: Watch<'a>,
    objects: Objects<'a>,
    pub(super) data: Link<&'a OwnedFd>,
    pub(super) data_open: bool,
    pub(super) greeted: bool,
    monitor_open: bool,
    pub(super) output: Output<'a>,
    pub(super) cell: Option<CellUnderWay>,
    /// The cgroup's counts when the last cell ended.
    pub(super) counted: Counts,
    /// The number of cells so far.
    pub(super) cells: u64,
    pub(super) born: Instant,
    pub(super) waiting_since: Instant,
    for_worker: AdaptivePoll,
    for_caller: AdaptivePoll,
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
    /// Set when the worker closed its link.
    pub(super) hung_up: Option<Disconnect>,
}

impl<'a> WorkerLoop<'a> {
    /// Prepares to serve a worker that is ready in its jail. A session greets it here; the message of a
    /// run contains its greeting.
    pub fn new(
        context: &'a RunContext<'a>,
        verified: &'a VerifiedWorker,
        purpose: Purpose,
    ) -> Result<Self, SupervisorError> {
        let worker = &verified.worker;
        let mut watch = verified.watch(context);
        let now = Instant::now();
        for pipe in [&worker.stdout, &worker.stderr] {
            set_nonblocking(pipe).when("prepare the worker's streams")?;
        }
        let output = Output::new(&worker.stdout, &worker.stderr, context.limits.output());
        let mut data =
            Link::new(&worker.data, FrameLimits::FROM_WORKER).when("prepare the worker's link")?;
        if let Purpose::Session(_) = purpose {
            let mut hello = Vec::new();
            Request::Hello {
                version: VERSION,
                serves: WorkerMode::Session,
            }
            .encode_into(&[], &mut hello)?;
            data.send(hello, None);
            watch.begin(Pace::Waiting, now, None);
            if let Some(cgroup) = &verified.cgroup {
                cgroup.settle();
            }
        }
        Ok(Self {
            context,
            verified,
            worker,
            purpose,
            watch,
            objects: verified.objects(),
            data,
            data_open: true,
            greeted: false,
            monitor_open: true,
            output,
            cell: None,
            counted: Counts::default(),
            cells: 0,
            born: now,
            waiting_since: now,
            for_worker: AdaptivePoll::default(),
            for_caller: AdaptivePoll::default(),
            stop: None,
            why: None,
            failure: None,
            reap_until: None,
            exit: None,
            exited: None,
            hung_up: None,
        })
    }

    /// Serves worker and caller until one of them is gone. `later` is deferred until the first cell
    /// ends.
    pub fn attend(
        &mut self,
        caller: &mut dyn Caller,
        later: Option<Deferred>,
    ) -> Result<SessionExit, SupervisorError> {
        let left = self.until_gone(caller, later)?;
        Ok(left.unwrap_or_else(|| self.gone(caller)))
    }

    /// Serves until the worker is gone; or until the caller is, or wants no more of it.
    pub(super) fn until_gone(
        &mut self,
        caller: &mut dyn Caller,
        mut later: Option<Deferred>,
    ) -> Result<Option<SessionExit>, SupervisorError> {
        let mut received = self.recv(caller);
        loop {
            if received.is_some() {
                return Ok(received);
            }
            let due = later.as_ref().map(Deferred::due);
            let ready = self.wait(caller, due).when("wait for the worker")?;
            caller.flush();
            // Frames first: a worker that breaks the protocol is ended before more of its output is
            // read.
            if ready.data_in {
                self.read_frames(caller);
            }
            if ready.data_out {
                self.data.flush();
            }
            for (stream, readable) in [
                (Stream::Stdout, ready.stdout),
                (Stream::Stderr, ready.stderr),
            ] {
                if readable {
                    self.drain(stream, caller);
                }
            }
            if ready.objects {
                self.watch.charge(self.objects.answer(&self.watch));
            }
            if ready.monitor {
                self.read_monitor(caller)?;
            }
            self.check_clocks(Instant::now());
            let given_up = self.reap_until.is_some_and(|until| Instant::now() >= until);
            if !self.monitor_open || given_up {
                return Ok(None);
            }
            received = if ready.caller {
                self.recv(caller)
            } else {
                None
            };
            let is_over = self.cells > 0 && self.cell.is_none();
            later = later.filter(|later| !is_over && !later.is_due(Instant::now()));
        }
    }

    /// Waits until `due` at the latest.
    fn wait(&mut self, caller: &dyn Caller, due: Option<Instant>) -> Result<Ready, Errno> {
        let outgoing = |unsent: usize| {
            if unsent > 0 {
                PollFlags::POLLIN | PollFlags::POLLOUT
            } else {
                PollFlags::POLLIN
            }
        };
        let flowing = caller.unsent() < BACKLOG;
        let quiet = self.quiet(Instant::now());
        let pipe = |stream| {
            let pipe = self.output.pipe(stream);
            let pipe = pipe.filter(|_| flowing && quiet.is_none())?;
            Some((pipe, PollFlags::POLLIN))
        };
        let takes = self.data.unsent_frames() < UNTAKEN && self.data.unsent() < UNTAKEN_BYTES;
        let calls = self.cell.as_ref().is_none_or(|cell| cell.calls.has_room());
        let may_receive = flowing && takes && calls;
        let mut data_events = outgoing(self.data.unsent());
        if !may_receive {
            data_events -= PollFlags::POLLIN;
        }
        let is_ending = matches!(quiet, Some((Quiet::Ending, _)));
        let data = self.data_open && !data_events.is_empty() && !is_ending;
        let quiet_until = quiet.map(|(_, until)| until);
        let events = self.next_event().into_iter().chain(due);
        let until = events.chain(quiet_until).min();
        let (wakeful, since) = match &self.cell {
            Some(cell) => (&mut self.for_worker, cell.started),
            None => (&mut self.for_caller, self.waiting_since),
        };
        let objects = self.objects.source().filter(|_| !is_ending);
        let [monitor, data, stdout, stderr, caller, objects] = wakeful.wait(
            since,
            [
                Some((self.worker.monitor.as_fd(), PollFlags::POLLIN)),
                data.then(|| (self.data.as_fd(), data_events)),
                pipe(Stream::Stdout),
                pipe(Stream::Stderr),
                caller.as_fd().map(|fd| (fd, outgoing(caller.unsent()))),
                objects,
            ],
            until,
        )?;
        Ok(Ready {
            monitor: is_readable(monitor),
            data_in: is_readable(data) && may_receive,
            data_out: data.contains(PollFlags::POLLOUT),
            stdout: is_readable(stdout),
            stderr: is_readable(stderr),
            caller: is_readable(caller),
            objects: is_readable(objects),
        })
    }

    /// What is quiet now, and until when.
    fn quiet(&self, now: Instant) -> Option<(Quiet, Instant)> {
        let cell = self.cell.as_ref();
        let is_run = matches!(self.purpose, Purpose::Run(_));
        let answered = cell.and_then(|cell| cell.answered).filter(|_| is_run);
        let ending = self.exited.or(answered).map(|at| (Quiet::Ending, at));
        let starting = || cell.map(|cell| (Quiet::Starting, cell.started));
        let (quiet, since) = ending.or_else(starting)?;
        let until = since + QUIET;
        (now < until).then_some((quiet, until))
    }

    /// Reads the guest's output. Output between two cells belongs to the next one.
    pub(super) fn drain(&mut self, stream: Stream, caller: &mut dyn Caller) {
        let drained = match &self.cell {
            Some(cell) if cell.streaming == Streaming::AsItComes => {
                let mut sink = StreamSink {
                    caller,
                    id: cell.id,
                };
                self.output.drain(stream, &mut sink)
            }
            _ => self.output.drain(stream, &mut ()),
        };
        if drained == Drained::OverCap {
            self.interrupt(Stop::output());
        }
    }

    fn read_monitor(&mut self, caller: &mut dyn Caller) -> Result<(), SupervisorError> {
        match recv_report(self.worker.monitor.as_fd()) {
            Ok(Some((FromMonitor::Exited(exit), _))) => {
                self.exit = Some(exit);
                self.exited = Some(Instant::now());
                // Processes that it left behind may keep the namespace alive.
                self.expect_the_end();
                // Messages sent before the end count. A process left behind may go on sending, but
                // reading stops after the contents of the socket's buffer.
                _ = (0..LAST_READS)
                    .take_while(|_| self.data_open && self.read_frames(caller))
                    .count();
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::ECONNRESET) => {
                self.monitor_open = false;
                self.worker.note_gone();
            }
            Err(errno) => return Err(errno).when("read from the zygote"),
        }
        Ok(())
    }

    /// The cgroup's counts since the worker was forked.
    pub(super) fn counts(&mut self) -> Counts {
        let counts = if self.monitor_open {
            WorkerCgroup::counts
        } else {
            WorkerCgroup::last_counts
        };
        let cgroup = self.verified.cgroup.as_ref();
        self.counted = cgroup.map(counts).unwrap_or_default();
        self.counted
    }

    /// Handles the end of the whole worker: reports the end of its last cell, then that of the
    /// session.
    fn gone(&mut self, caller: &mut dyn Caller) -> SessionExit {
        if let Some(failure) = self.failure.take() {
            let why = failure.to_string();
            if let Some(cell) = self.cell.take() {
                caller.refuse(Some(cell.id), failure.into());
            }
            return SessionExit::Ended(why);
        }
        if self.is_lost() {
            if let Some(cell) = self.cell.take() {
                caller.refuse(Some(cell.id), SupervisorError::RunLost.into());
            }
            return SessionExit::Ended("its zygote was ended from outside".to_owned());
        }
        let why = match self.cell.take() {
            Some(cell) => {
                let why = self.finish(cell, None, Fate::Ended, caller);
                format!("its last cell ended with `{why}`")
            }
            None => self.why.take().unwrap_or_else(|| match self.exit {
                Some(exit) => format!(
                    "its process {} between two cells",
                    match exit.status {
                        ExitStatus::Code(code) => format!("exited with {code}"),
                        ExitStatus::Signal(signal) => format!("was ended by signal {signal}"),
                    }
                ),
                None => "it was ended".to_owned(),
            }),
        };
        SessionExit::Ended(why)
    }

    /// Whether the worker is gone without having ended by itself or by the supervisor's will.
    pub(super) fn is_lost(&self) -> bool {
        self.exit.is_none() && self.stop.is_none()
    }

    /// Sets how long to wait until nothing is left of a worker that was killed or has lost its main
    /// process.
    pub(super) fn expect_the_end(&mut self) {
        self.reap_until.get_or_insert(self.worker.ends_by());
    }
}

/// A moment in which the loop waits for fewer descriptors.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Quiet {
    /// The cell has just started: its output can wait.
    Starting,
    /// The run has sent its result, or its process has ended: only the end of the worker cannot wait.
    Ending,
}

/// The result of poll(2).
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // one for each event, as the kernel tells them
struct Ready {
    monitor: bool,
    data_in: bool,
    data_out: bool,
    stdout: bool,
    stderr: bool,
    caller: bool,
    objects: bool,
}
