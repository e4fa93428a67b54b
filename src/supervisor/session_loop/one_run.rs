//! Serves a run: a session of one cell, whose caller only receives output and may cancel.

use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::caller::{Caller, CallerEvent, Payload};
use super::refusal::Refusal;
use super::worker_io::WorkerIo as _;
use super::worker_loop::WorkerLoop;
use super::{Beginning, Purpose};
use crate::outcome::value::HeldBuffers;
use crate::outcome::{JailSteps, Outcome, Phases};
use crate::protocol::caller::{ClientEvent, ClientRequest};
use crate::supervisor::clock;
use crate::supervisor::drain::{OutputSink, Stream};
use crate::supervisor::ending::Kind;
use crate::supervisor::error::SupervisorError;
use crate::supervisor::run::{Cancel, Deferred, Fate, Observed, RunContext, report};
use crate::supervisor::spawn::Worker;
use crate::supervisor::verified_worker::VerifiedWorker;
use sandfork_jail::timing::{Part, Timing};

/// A run, without its worker.
pub struct OneRun<'r> {
    /// The kind of code.
    pub kind: Kind,
    /// The greeting and the request, encoded.
    pub message: Vec<u8>,
    /// When the caller requested the run.
    pub called: Instant,
    /// The receiver of the run's output.
    pub sink: &'r mut dyn OutputSink,
    /// The handle that may cancel the run.
    pub cancel: Option<&'r Cancel>,
}

/// When the steps of a run were observed. A step that was not observed has the time of the next step.
struct Times {
    /// The worker was sent its code.
    started: Instant,
    /// The worker sent its result.
    answered: Instant,
    /// The main process ended.
    exited: Instant,
    /// No process of the worker was left.
    gone: Instant,
}

/// Sends a run to its worker and returns when the worker is gone. `later` is work that is deferred until then, or until
/// it is due.
///
/// # Errors
///
/// As for [`run`](crate::supervisor::run()).
pub fn serve_run(
    context: &RunContext,
    verified: &VerifiedWorker,
    run: OneRun,
    later: Option<Deferred>,
) -> Result<Outcome, SupervisorError> {
    let kind = run.kind;
    let mut worker_loop = WorkerLoop::new(context, verified, Purpose::Run(kind), Beginning::Fresh)?;
    let started = clock::now();
    worker_loop.state.start_run(run.message, started);
    let mut caller = RunCaller {
        sink: run.sink,
        cancel: run.cancel,
    };
    worker_loop.until_gone(&mut caller, later)?;
    let gone = clock::now();
    let mut state = worker_loop.state;
    // No process is left to write, so the pipes hold all remaining output.
    state.on_output(Stream::Stdout, gone, &mut caller);
    state.on_output(Stream::Stderr, gone, &mut caller);
    verified.worker.end();
    if let Some(failure) = state.failure {
        return Err(failure);
    }
    let is_lost = state.is_lost();
    let cell = state.cell.take().filter(|_| !is_lost);
    let mut cell = cell.ok_or(SupervisorError::RunLost)?;
    let exited = state.exited.unwrap_or(gone);
    let times = Times {
        started,
        answered: cell.answered.unwrap_or(exited),
        exited,
        gone,
    };
    let (mut result, payload) = match cell.result.take() {
        Some((result, payload)) => (Some(result), payload.bytes),
        None => (None, Vec::new()),
    };
    let blob = result.as_mut().and_then(|result| result.blob.take());
    let observed = Observed {
        wall: exited - started,
        phases: phases(run.called, &verified.worker, &times),
        ..state.observe(&mut cell, result, Fate::Ended, gone)
    };
    let (stdout, stderr, total) = state.io.take_output();
    let outcome = report(&state.terms, kind, observed, total, &stderr);
    let blob = blob.filter(|_| outcome.value().is_some());
    let buffers = blob.map(|blob| HeldBuffers::new(blob, payload));
    Ok(outcome.with_output(stdout, stderr).with_buffers(buffers))
}

fn phases(called: Instant, worker: &Worker, times: &Times) -> Phases {
    // The time to make a worker in advance was not the caller's.
    let since =
        |later: Instant, earlier: Instant| later.saturating_duration_since(earlier.max(called));
    let ready = worker.jailed.max(called);
    Phases {
        place: since(worker.requested, called),
        fork: since(worker.forked, worker.requested),
        jail: since(worker.jailed, worker.forked),
        jail_steps: if worker.jailed > called {
            jail_steps(&worker.timing)
        } else {
            JailSteps::default()
        },
        verify: times.started - ready,
        code: times.answered - times.started,
        exit: times.exited - times.answered,
        reap: times.gone - times.exited,
    }
}

fn jail_steps(timing: &Timing) -> JailSteps {
    JailSteps {
        descriptors: timing.of(Part::Descriptors),
        cgroup: timing.of(Part::Cgroup),
        namespaces: timing.of(Part::Namespaces),
        mounts: timing.of(Part::Mounts),
        limits: timing.of(Part::Limits),
        identity: timing.of(Part::Identity),
        landlock: timing.of(Part::Landlock),
        capabilities: timing.of(Part::Capabilities),
        seccomp: timing.of(Part::Seccomp),
    }
}

/// The caller of a run.
struct RunCaller<'c> {
    sink: &'c mut dyn OutputSink,
    /// The handle, until it is used.
    cancel: Option<&'c Cancel>,
}

impl Caller for RunCaller<'_> {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        self.cancel.map(Cancel::as_fd)
    }

    fn recv(&mut self) -> CallerEvent {
        // The handle stays readable, because it may cancel other runs too.
        let used = self.cancel.take_if(|cancel| cancel.is_used());
        if used.is_some() {
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
