//! The loop of one session.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use super::caller::Caller;
use super::cell::{CellUnderWay, Streaming};
use super::finish::Handed;
use super::hear::refuse;
use super::wakeful::Wakeful;
use super::{Left, SessionTerms};
use crate::jail::control::{Exit, ExitStatus, FromMonitor};
use crate::protocol::caller::ErrorWord;
use crate::protocol::message::Serves;
use crate::protocol::{FrameLimits, Request, VERSION};
use crate::supervisor::cgroup::{Counts, WorkerCgroup};
use crate::supervisor::descriptors::{hear, set_nonblocking};
use crate::supervisor::drain::{Drained, Output, Stream};
use crate::supervisor::ending::Stop;
use crate::supervisor::error::{SupervisorError, While};
use crate::supervisor::hang_up::HangUp;
use crate::supervisor::link::Link;
use crate::supervisor::run::{Fate, Later, Pace, Place, Watch};
use crate::supervisor::spawn::Worker;
use crate::supervisor::standing::Standing;
use crate::supervisor::wait::is_readable;

/// How often the data socket is read after the main process ended: its buffer is smaller than that.
const LAST_READS: usize = 16;

/// Answers that a caller has not taken, bytes, beyond which nothing more is read of the worker: it
/// waits, as a program does whose output nobody reads.
const BACKLOG: usize = 1 << 20;

/// A live session.
pub struct Live<'a> {
    pub(super) place: &'a Place<'a>,
    pub(super) standing: &'a Standing,
    pub(super) worker: &'a Worker,
    pub(super) terms: SessionTerms,
    pub(super) watch: Watch<'a>,
    pub(super) data: Link<&'a OwnedFd>,
    pub(super) data_open: bool,
    pub(super) greeted: bool,
    monitor_open: bool,
    pub(super) output: Output,
    pub(super) cell: Option<CellUnderWay>,
    /// What the cgroup had counted when the last cell ended.
    pub(super) counted: Counts,
    /// Cells so far.
    pub(super) cells: u64,
    pub(super) born: Instant,
    pub(super) waiting_since: Instant,
    for_worker: Wakeful,
    for_caller: Wakeful,
    /// Why the supervisor ended the worker, if it did.
    pub(super) stop: Option<Stop>,
    /// The same, as a part of a sentence, where no cell tells.
    pub(super) why: Option<String>,
    /// When to give up on a killed worker.
    pub(super) reap_until: Option<Instant>,
    pub(super) exit: Option<Exit>,
    pub(super) exited: Option<Instant>,
    /// Set when the worker hung up.
    pub(super) hung_up: Option<HangUp>,
}

impl<'a> Live<'a> {
    /// Greets a worker that stands in its jail.
    pub fn new(
        place: &'a Place<'a>,
        standing: &'a Standing,
        terms: SessionTerms,
    ) -> Result<Self, SupervisorError> {
        let worker = &standing.worker;
        let mut watch = standing.watch(place);
        let now = Instant::now();
        for pipe in [&worker.stdout, &worker.stderr] {
            set_nonblocking(pipe).when("prepare the worker's streams")?;
        }
        let copy = |pipe: &OwnedFd| pipe.try_clone().when("copy the output's descriptor");
        let output = Output::new(
            copy(&worker.stdout)?,
            copy(&worker.stderr)?,
            place.limits.output,
        );
        let mut data =
            Link::new(&worker.data, FrameLimits::FROM_WORKER).when("prepare the worker's link")?;
        let mut hello = Vec::new();
        Request::Hello {
            version: VERSION,
            serves: Serves::Session,
        }
        .encode_into(&[], &mut hello)?;
        data.send(hello, None);
        watch.begin(Pace::Waiting, now, None);
        if let Some(cgroup) = &standing.cgroup {
            cgroup.settle();
        }
        Ok(Self {
            place,
            standing,
            worker,
            terms,
            watch,
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
            for_worker: Wakeful::default(),
            for_caller: Wakeful::default(),
            stop: None,
            why: None,
            reap_until: None,
            exit: None,
            exited: None,
            hung_up: None,
        })
    }

    /// Attends to worker and caller until one of them is gone. `later` waits until the first cell is over.
    pub fn attend(
        &mut self,
        caller: &mut dyn Caller,
        mut later: Option<Later>,
    ) -> Result<Left, SupervisorError> {
        let mut heard = self.hear(caller);
        loop {
            if let Some(left) = heard {
                return Ok(left);
            }
            let due = later.as_ref().map(Later::due);
            let ready = self.wait(caller, due).when("wait for the worker")?;
            caller.flush();
            // Frames first: a worker that breaks the protocol is ended before more of it is heard.
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
            if ready.monitor {
                self.read_monitor(caller)?;
            }
            self.check_clocks(Instant::now());
            let given_up = self.reap_until.is_some_and(|until| Instant::now() >= until);
            if !self.monitor_open || given_up {
                return Ok(self.gone(caller));
            }
            heard = if ready.caller {
                self.hear(caller)
            } else {
                None
            };
            let is_over = self.cells > 0 && self.cell.is_none();
            later = later.filter(|later| !is_over && !later.is_due(Instant::now()));
        }
    }

    /// Until `due` at the latest.
    fn wait(&mut self, caller: &dyn Caller, due: Option<Instant>) -> Result<Ready, Errno> {
        let outgoing = |unsent: usize| {
            if unsent > 0 {
                PollFlags::POLLIN | PollFlags::POLLOUT
            } else {
                PollFlags::POLLIN
            }
        };
        let flowing = caller.unsent() < BACKLOG;
        let pipe = |stream| {
            let pipe = self.output.pipe(stream).filter(|_| flowing)?;
            Some((pipe.as_fd(), PollFlags::POLLIN))
        };
        let mut data_events = outgoing(self.data.unsent());
        if !flowing {
            data_events -= PollFlags::POLLIN;
        }
        let data = self.data_open && !data_events.is_empty();
        let until = self.next_event().into_iter().chain(due).min();
        let (wakeful, since) = match &self.cell {
            Some(cell) => (&mut self.for_worker, cell.started),
            None => (&mut self.for_caller, self.waiting_since),
        };
        let [monitor, data, stdout, stderr, caller] = wakeful.wait(
            since,
            [
                Some((self.worker.monitor.as_fd(), PollFlags::POLLIN)),
                data.then(|| (self.data.as_fd(), data_events)),
                pipe(Stream::Stdout),
                pipe(Stream::Stderr),
                Some((caller.as_fd(), outgoing(caller.unsent()))),
            ],
            until,
        )?;
        Ok(Ready {
            monitor: is_readable(monitor),
            data_in: is_readable(data) && flowing,
            data_out: data.contains(PollFlags::POLLOUT),
            stdout: is_readable(stdout),
            stderr: is_readable(stderr),
            caller: is_readable(caller),
        })
    }

    /// Reads what the guest printed; what it prints between two cells is the next one's.
    fn drain(&mut self, stream: Stream, caller: &mut dyn Caller) {
        let drained = match &self.cell {
            Some(cell) if cell.streaming == Streaming::AsItComes => {
                let mut sink = Handed {
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
        match hear(self.worker.monitor.as_fd()) {
            Ok(Some((FromMonitor::Exited(exit), _))) => {
                self.exit = Some(exit);
                self.exited = Some(Instant::now());
                // Where processes that it left behind keep their namespace alive.
                self.expect_the_end();
                // What was sent before the end counts. A process that it left behind may go on
                // sending, but not for long: the socket's buffer is all that is read.
                _ = (0..LAST_READS)
                    .take_while(|_| self.data_open && self.read_frames(caller))
                    .count();
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::ECONNRESET) => self.monitor_open = false,
            Err(errno) => return Err(errno).when("read from the zygote"),
        }
        Ok(())
    }

    /// What the cgroup has counted since the worker's birth.
    pub(super) fn counts(&mut self) -> Counts {
        self.counted = self
            .standing
            .cgroup
            .as_ref()
            .map(WorkerCgroup::counts)
            .unwrap_or_default();
        self.counted
    }

    /// Nothing is left of the worker: the end of its last cell is told, and then that of the session.
    fn gone(&mut self, caller: &mut dyn Caller) -> Left {
        if self.exit.is_none() && self.stop.is_none() {
            if let Some(cell) = self.cell.take() {
                let lost = SupervisorError::RunLost.to_string();
                refuse(caller, Some(cell.id), ErrorWord::System, lost);
            }
            return Left::Ended("its zygote was ended from outside".to_owned());
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
        Left::Ended(why)
    }

    /// A killed worker, or one whose main process is gone, has this long until nothing is left of it.
    pub(super) fn expect_the_end(&mut self) {
        const REAP_TIMEOUT: Duration = Duration::from_secs(10);
        self.reap_until
            .get_or_insert_with(|| Instant::now() + REAP_TIMEOUT);
    }
}

/// What poll(2) found.
#[derive(Clone, Copy)]
#[allow(clippy::struct_excessive_bools)] // one for each event, as the kernel tells them
struct Ready {
    monitor: bool,
    data_in: bool,
    data_out: bool,
    stdout: bool,
    stderr: bool,
    caller: bool,
}
