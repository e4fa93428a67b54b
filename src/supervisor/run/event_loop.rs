//! The loop of one run: waits for the worker, its output and the clock.

mod wait;

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::unistd::{read, write};

use super::request::{Cancel, ONLY_REQUEST};
use super::watch::{Measured, Watch};
use super::{Later, OutputSink, RunLimits};
use crate::jail::control::{Exit, FromMonitor};
use crate::protocol::{CellResult, Decoder, FrameLimits, Reply, VERSION};
use crate::supervisor::descriptors::{hear, set_nonblocking};
use crate::supervisor::drain::{Drained, Output, Stream};
use crate::supervisor::ending::{Kind, Stop};
use crate::supervisor::error::{SupervisorError, While};
use crate::supervisor::hang_up::HangUp;
use crate::supervisor::spawn::Worker;

/// How often the data socket is read after the main process ended: its buffer is smaller than that.
const LAST_READS: usize = 16;

/// How long a killed worker may take to be gone before the run is reported all the same; what is
/// left of it is the zygote's to reap.
const REAP_TIMEOUT: Duration = Duration::from_secs(10);

/// A run that is going on.
pub struct Running<'a> {
    worker: &'a Worker,
    limits: RunLimits,
    kind: Kind,
    watch: Watch<'a>,
    output: Output,
    outgoing: Vec<u8>,
    sent: usize,
    decoder: Decoder,
    data: Link,
    monitor: Link,
    greeted: bool,
    result: Option<CellResult>,
    answered: Option<Instant>,
    exit: Option<Exit>,
    exited: Option<Instant>,
    stop: Option<Stop>,
    /// When to stop waiting for whatever is being waited for.
    deadline: Instant,
    /// Set when the worker hung up without a result.
    hung_up: Option<HangUp>,
}

/// Whether something was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Progress {
    Some,
    None,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Link {
    Open,
    Closed,
}

/// What was seen of a run.
pub struct Ended {
    pub stop: Option<Stop>,
    pub exit: Option<Exit>,
    pub result: Option<CellResult>,
    pub output: Output,
    pub times: Times,
    pub watched: Measured,
}

/// When things were seen. What never came is taken to have come with the next thing that did.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub started: Instant,
    pub answered: Instant,
    pub exited: Instant,
    pub gone: Instant,
}

impl<'a> Running<'a> {
    /// Prepares to send `message` to a worker that stands in its jail.
    pub fn new(
        worker: &'a Worker,
        message: Vec<u8>,
        limits: RunLimits,
        kind: Kind,
        watch: Watch<'a>,
    ) -> Result<Self, SupervisorError> {
        for fd in [&worker.data, &worker.stdout, &worker.stderr] {
            set_nonblocking(fd).when("prepare the worker's streams")?;
        }
        let stdout = worker
            .stdout
            .try_clone()
            .when("copy the output's descriptor")?;
        let stderr = worker
            .stderr
            .try_clone()
            .when("copy the output's descriptor")?;
        Ok(Self {
            worker,
            limits,
            kind,
            watch,
            output: Output::new(stdout, stderr, limits.output),
            outgoing: message,
            sent: 0,
            decoder: Decoder::new(FrameLimits::FROM_WORKER),
            data: Link::Open,
            monitor: Link::Open,
            greeted: false,
            result: None,
            answered: None,
            exit: None,
            exited: None,
            stop: None,
            deadline: Instant::now() + limits.wall,
            hung_up: None,
        })
    }

    /// Sends the message and goes on until nothing of the worker is left.
    pub fn until_end(
        mut self,
        sink: &mut dyn OutputSink,
        cancel: Option<&Cancel>,
        mut later: Option<Later>,
    ) -> Result<Ended, SupervisorError> {
        let started = Instant::now();
        self.deadline = started + self.limits.wall;
        self.send_more();
        while self.monitor == Link::Open {
            let due = later.as_ref().map(Later::due);
            let ready = self.wait(cancel, due).when("wait for the worker")?;
            if ready.cancel {
                self.end(Stop::Cancelled);
            }
            // Frames first: a worker that breaks the protocol is ended before more of it is heard.
            if ready.data_in {
                self.read_frames()?;
            }
            if ready.data_out {
                self.send_more();
            }
            if ready.stdout {
                self.drain(Stream::Stdout, sink);
            }
            if ready.stderr {
                self.drain(Stream::Stderr, sink);
            }
            if ready.monitor {
                self.read_monitor()?;
            }
            let now = Instant::now();
            if !self.check_clocks(now) {
                break;
            }
            later = later.filter(|later| !later.is_due(now));
        }
        // Nothing writes any more: what is in the pipes is all there will be.
        self.drain(Stream::Stdout, sink);
        self.drain(Stream::Stderr, sink);
        let gone = Instant::now();
        let exited = self.exited.unwrap_or(gone);
        let times = Times {
            started,
            answered: self.answered.unwrap_or(exited),
            exited,
            gone,
        };
        let Self {
            stop,
            exit,
            result,
            output,
            watch,
            ..
        } = self;
        Ok(Ended {
            stop,
            exit,
            result,
            output,
            times,
            watched: watch.peak(),
        })
    }

    /// Ends the worker, once, for the first reason.
    fn end(&mut self, stop: Stop) {
        if self.stop.is_none() && self.exit.is_none() {
            self.stop = Some(stop);
            self.deadline = Instant::now() + REAP_TIMEOUT;
            self.worker.kill();
        }
    }

    /// Whether it is worth waiting on.
    fn check_clocks(&mut self, now: Instant) -> bool {
        if self.stop.is_some() || self.exit.is_some() {
            return now < self.deadline;
        }
        if let Some(stop) = self.watch.look(now) {
            self.end(stop);
        }
        if now >= self.deadline {
            self.end(Stop::deadline());
        }
        let worker = self.worker;
        let hang_up = self.hung_up.as_mut();
        if hang_up.is_some_and(|hang_up| hang_up.is_violation(now, worker)) {
            self.end(Stop::Violation(
                "it closed its data socket and went on".into(),
            ));
        }
        true
    }

    fn drain(&mut self, stream: Stream, sink: &mut dyn OutputSink) {
        if self.output.drain(stream, sink) == Drained::OverCap {
            self.end(Stop::output());
        }
    }

    fn send_more(&mut self) {
        while self.data == Link::Open && self.sent < self.outgoing.len() {
            match write(&self.worker.data, &self.outgoing[self.sent..]) {
                Ok(length) => self.sent += length,
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                // It hung up; reading says so.
                Err(_) => self.sent = self.outgoing.len(),
            }
        }
    }

    /// Reads once: a worker that floods its socket must not keep the loop from the clocks.
    fn read_frames(&mut self) -> Result<Progress, SupervisorError> {
        let mut buffer = vec![0; 64 * 1024];
        let progress = match read(self.worker.data.as_fd(), &mut buffer) {
            Err(Errno::EINTR) => Progress::Some,
            Err(Errno::EAGAIN) => Progress::None,
            Ok(0) | Err(Errno::ECONNRESET) => {
                self.data = Link::Closed;
                if self.result.is_none() && self.kind == Kind::Cell {
                    self.hung_up = Some(HangUp::new(Instant::now()));
                }
                Progress::None
            }
            // A result may be there that nobody can have: whatever were said of the run would be a guess.
            Err(errno) => return Err(errno).when("read from the worker"),
            Ok(length) => match self.take_frames(&buffer[..length]) {
                Ok(()) => Progress::Some,
                Err(how) => {
                    self.end(Stop::Violation(how));
                    self.data = Link::Closed;
                    Progress::None
                }
            },
        };
        Ok(progress)
    }

    fn take_frames(&mut self, mut input: &[u8]) -> Result<(), String> {
        while let Some(frame) = self
            .decoder
            .decode(&mut input)
            .map_err(|error| error.to_string())?
        {
            match Reply::parse(&frame).map_err(|error| error.to_string())? {
                Reply::Result(_) if self.result.is_some() => {
                    return Err("it sent a second result".into());
                }
                Reply::Result(_) if !self.greeted => {
                    return Err("it sent a result before it greeted".into());
                }
                Reply::Result(result) if result.id != ONLY_REQUEST => {
                    return Err(format!("it sent a result of request {}", result.id));
                }
                Reply::Result(result) if result.blob.is_some() => {
                    return Err("it sent buffers, which only the worker of a session may".into());
                }
                Reply::Result(result) => {
                    self.answered = Some(Instant::now());
                    self.result = Some(result);
                }
                Reply::Ready { .. } if self.greeted || self.result.is_some() => {
                    return Err("it greeted a second time".into());
                }
                Reply::Ready { version } if version != VERSION => {
                    return Err(format!("it speaks version {version} of the protocol"));
                }
                Reply::Ready { .. } => self.greeted = true,
                Reply::Display(_) | Reply::Call(_) => {
                    return Err("it sent what only the worker of a session may".into());
                }
            }
        }
        Ok(())
    }

    fn read_monitor(&mut self) -> Result<(), SupervisorError> {
        match hear(self.worker.monitor.as_fd()) {
            Ok(Some((FromMonitor::Exited(exit), _))) => {
                self.exit = Some(exit);
                self.exited = Some(Instant::now());
                if self.stop.is_none() {
                    self.deadline = Instant::now() + REAP_TIMEOUT;
                }
                // What was sent before the end counts. A process that it left behind may go on
                // sending, but not for long: the socket's buffer is all that is read.
                for _ in 0..LAST_READS {
                    if self.data == Link::Closed || self.read_frames()? == Progress::None {
                        break;
                    }
                }
            }
            Ok(Some(_)) => {}
            Ok(None) | Err(Errno::ECONNRESET) => self.monitor = Link::Closed,
            Err(errno) => return Err(errno).when("read from the zygote"),
        }
        Ok(())
    }
}
