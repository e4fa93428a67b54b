//! A run: a session of one cell, whose caller only takes output and may cancel.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::caller::{Caller, CallerEvent, Payload};
use super::cell::{CellUnderWay, Streaming};
use super::clocks::WallClock;
use super::refusal::Refusal;
use super::worker_loop::WorkerLoop;
use crate::protocol::caller::{ClientEvent, ClientRequest};
use crate::protocol::message::AfterCell;
use crate::supervisor::cgroup::Counts;
use crate::supervisor::drain::{Output, OutputSink, Stream};
use crate::supervisor::error::SupervisorError;
use crate::supervisor::run::{Cancel, Deferred, Fate, ONLY_REQUEST, Seen};

/// A run whose worker is gone.
pub struct EndedRun<'w> {
    /// The evidence of its end. `phases` is empty.
    pub seen: Seen,
    /// What it printed.
    pub output: Output<'w>,
    /// When its steps were observed.
    pub times: Times,
}

/// When the steps of a run were observed. A step that was not observed has the time of the next one.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// The worker was sent its code.
    pub started: Instant,
    /// The worker sent its result.
    pub answered: Instant,
    /// The main process ended.
    pub exited: Instant,
    /// No process of the worker was left.
    pub gone: Instant,
}

impl<'w> WorkerLoop<'w> {
    /// Sends `message` to the worker and returns when the worker is gone.
    pub fn run(
        mut self,
        message: Vec<u8>,
        sink: &mut dyn OutputSink,
        cancel: Option<&Cancel>,
        later: Option<Deferred>,
    ) -> Result<EndedRun<'w>, SupervisorError> {
        let started = Instant::now();
        let clock = WallClock::new(started, self.context.limits.wall(), Duration::ZERO, None);
        let mut cell = CellUnderWay::new(ONLY_REQUEST, started, clock, Counts::default());
        cell.streaming = Streaming::AsItComes;
        cell.then = AfterCell::End;
        self.cell = Some(cell);
        self.data.send(message, None);
        let mut caller = RunCaller { sink, cancel };
        self.until_gone(&mut caller, later)?;
        // No process writes any more: the pipes hold the rest.
        self.drain(Stream::Stdout, &mut caller);
        self.drain(Stream::Stderr, &mut caller);
        let gone = Instant::now();
        self.worker.end();
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        let is_lost = self.is_lost();
        let cell = self.cell.take().filter(|_| !is_lost);
        let mut cell = cell.ok_or(SupervisorError::RunLost)?;
        let exited = self.exited.unwrap_or(gone);
        let times = Times {
            started,
            answered: cell.answered.unwrap_or(exited),
            exited,
            gone,
        };
        let result = cell.result.take().map(|(result, _)| result);
        let seen = self.seen(&mut cell, result, Fate::Ended);
        Ok(EndedRun {
            seen: Seen {
                wall: exited - started,
                ..seen
            },
            output: self.output,
            times,
        })
    }
}

/// The caller of a run.
struct RunCaller<'c> {
    sink: &'c mut dyn OutputSink,
    /// Until it was used.
    cancel: Option<&'c Cancel>,
}

impl Caller for RunCaller<'_> {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.cancel.map(Cancel::as_fd)
    }

    fn unsent(&self) -> usize {
        0
    }

    fn flush(&mut self) {}

    fn recv(&mut self) -> CallerEvent {
        // The handle stays readable: it cancels other runs too.
        let is_used = |cancel: &mut &Cancel| {
            let mut fds = [PollFd::new(cancel.as_fd(), PollFlags::POLLIN)];
            poll(&mut fds, PollTimeout::ZERO) == Ok(1)
        };
        if self.cancel.take_if(is_used).is_some() {
            return CallerEvent::Request(ClientRequest::Interrupt, Payload::default());
        }
        CallerEvent::Nothing
    }

    fn answer(&mut self, _: ClientEvent, _: Payload) {}

    fn refuse(&mut self, _: Option<u64>, _: Refusal) {}

    fn output(&mut self, _: u64, stream: Stream, bytes: &[u8]) {
        match stream {
            Stream::Stdout => self.sink.stdout(bytes),
            Stream::Stderr => self.sink.stderr(bytes),
        }
    }
}
