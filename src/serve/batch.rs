//! Serves a batch to another process: tasks arrive and results leave on one connection.
//!
//! Two threads share the connection's socket. The listener forwards tasks, and notices a caller that disconnects
//! without a message. The writer writes results, and blocks while the caller does not read them. While it blocks, no
//! further task starts, because unread results hold up the batch.

use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::{Shutdown, shutdown};

use crate::batch::{
    Batch, CallOff, Done, Expect, FailureStreak, LOST_IN_A_ROW, Mapped, Task, TaskId, TaskLine,
    WINDOW,
};
use crate::capacity::Capacity;
use crate::error::{Error, ErrorKind};
use crate::host::{io_exhaustion_hint, processors};
use crate::outcome::value::HeldBuffers;
use crate::policy::Policy;
use crate::protocol::VERSION;
use crate::protocol::caller::{
    ClientEvent, ClientRequest, ErrorCode, Mapping, OpenBatch, TaskHeader, TaskLoss, TaskOutcome,
    WireOutcome,
};
use crate::sandbox::Sandbox;
use crate::supervisor::{
    Caller, CallerEvent, FrameCaller, PIECE, Refusal, Request, await_caller, wait,
};
use sandfork_jail::sys::descriptors::send_some;

/// An error that ends a batch early. The caller receives it after all started tasks have ended.
struct BatchError {
    id: Option<u64>,
    code: ErrorCode,
    message: String,
}

impl BatchError {
    fn protocol(message: impl Into<String>) -> Self {
        Self {
            id: None,
            code: ErrorCode::PROTOCOL,
            message: message.into(),
        }
    }
}

/// Counts the tasks that have no answer yet.
struct Unanswered {
    count: AtomicUsize,
    most: usize,
}

impl Unanswered {
    /// Counts a task.
    fn add(&self) -> Result<(), BatchError> {
        if self.count.fetch_add(1, Ordering::Relaxed) < self.most {
            return Ok(());
        }
        Err(BatchError::protocol(format!(
            "more than {} tasks had no answer, the `window` of the batch: wait for an answer before the next task",
            self.most
        )))
    }

    /// Removes a task from the count.
    fn remove(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Serves a batch until its last result is written, or until its caller is gone.
pub fn serve(
    mut caller: FrameCaller,
    socket: &Arc<OwnedFd>,
    sandbox: Arc<Sandbox>,
    policy: &Policy,
    open: &OpenBatch,
) {
    let jobs = jobs(open, &sandbox);
    let window = jobs.get() * WINDOW;
    let begun = ClientEvent::Mapping(Mapping {
        version: VERSION,
        jobs: jobs.get(),
        window,
        policy: sandbox.policy().clone(),
        python: sandbox.python(),
        limits: sandbox.limits_by_key(),
    });
    // The window bounds this channel.
    let (tasks, queue) = channel();
    let unanswered = Unanswered {
        count: AtomicUsize::new(0),
        most: window,
    };
    let batch = Batch::new(sandbox).jobs(jobs).order(open.order);
    let mapped = match batch.try_map(queue) {
        Ok(mapped) => mapped,
        Err(error) => {
            return caller.refuse(None, start_error(&error));
        }
    };
    let mut writer = Writer {
        socket,
        unanswered: &unanswered,
        bytes: Vec::new(),
    };
    let call_off = mapped.call_off();
    let listened = thread::scope(|threads| {
        let listening = || listen(&mut caller, policy, (tasks, &unanswered), &call_off);
        thread::Builder::new().spawn_scoped(threads, listening)?;
        // An error means that the caller is gone, which the listener notices too.
        _ = writer
            .send_event(&begun, &[])
            .and_then(|()| collect(mapped, &mut writer));
        // Ends the listener. The caller can still read the written results.
        _ = shutdown(socket.as_raw_fd(), Shutdown::Read);
        Ok(())
    });
    if let Err(error) = listened {
        caller.refuse(None, start_error(&error));
    }
}

/// Returns the error for a batch for which no thread or descriptor was available.
fn start_error(cause: &io::Error) -> Refusal {
    let remedy = io_exhaustion_hint(cause, "try again");
    let sentence = format!("the supervisor cannot begin a batch: {cause}; {remedy}");
    Error::new(ErrorKind::System, sentence).into()
}

/// Returns the requested number of jobs, by default the number of processors, bounded by what the host can hold.
fn jobs(open: &OpenBatch, sandbox: &Sandbox) -> NonZeroUsize {
    let requested = open.jobs.map(NonZeroUsize::from);
    let runs = Capacity::of(sandbox).runs;
    runs.min(requested.unwrap_or_else(processors))
}

/// Receives tasks until the caller disconnects, and then cancels the running tasks.
fn listen(
    caller: &mut FrameCaller,
    policy: &Policy,
    (tasks, unanswered): (Sender<Result<Task, BatchError>>, &Unanswered),
    call_off: &CallOff<BatchError>,
) {
    let mut tasks = Some(tasks);
    loop {
        let received = match await_caller(caller) {
            Ok(CallerEvent::Nothing) => continue,
            Ok(CallerEvent::Request(ClientRequest::Task(header), payload)) => unanswered
                .add()
                .and_then(|()| task(&header, &payload.bytes, policy)),
            Ok(CallerEvent::Request(ClientRequest::End, _)) => {
                tasks = None;
                continue;
            }
            Ok(CallerEvent::Request(..)) => {
                Err(BatchError::protocol("this connection carries a batch"))
            }
            Ok(CallerEvent::Malformed(how)) => Err(BatchError::protocol(how)),
            Ok(CallerEvent::Gone) | Err(_) => break,
        };
        // Tasks after an invalid task are not started.
        let last = received.is_err();
        if let Some(tasks) = &tasks {
            // Fails if the batch has ended.
            _ = tasks.send(received);
        }
        if last {
            tasks = None;
        }
    }
    drop(tasks);
    call_off.now();
}

fn task(header: &TaskHeader, line: &[u8], policy: &Policy) -> Result<Task, BatchError> {
    let task = |(request, expect)| {
        Task::new(TaskId::Number(header.id.cast_signed()), request).expect(expect)
    };
    read(line, policy, header.filename.as_deref())
        .map(task)
        .map_err(|message| BatchError {
            id: Some(header.id),
            code: ErrorKind::Request.into(),
            message,
        })
}

fn read(
    line: &[u8],
    policy: &Policy,
    filename: Option<&str>,
) -> Result<(Request, Option<Expect>), String> {
    let line = TaskLine::parse(line).map_err(|error| error.to_string())?;
    line.check(policy).map_err(|error| error.to_string())?;
    if line.policy.is_some() {
        return Err("the tasks of a batch share one policy: open another batch".to_owned());
    }
    let script = |_| Err("the caller must read `file` and send its text as `code`".to_owned());
    let (request, expect) = line.request(filename, script)?;
    let fit = request.check_files(&policy.limits);
    fit.map_err(|error| format!("`files`: {error}"))?;
    Ok((request, expect))
}

/// Writes every result, and then the final event.
fn collect(mut mapped: Mapped<BatchError>, writer: &mut Writer) -> Result<(), Errno> {
    let mut losses = FailureStreak::default();
    while let Some(result) = mapped.next() {
        let error = match result {
            Ok(done) => {
                let error = losses.last_of_too_many(&done).map(too_many_losses);
                writer.done(done)?;
                error
            }
            Err(error) => Some(error),
        };
        let Some(error) = error else { continue };
        mapped.call_off().begin_no_more();
        writer.error(error)?;
    }
    writer.send_event(&ClientEvent::Closed, &[])
}

fn too_many_losses(error: &Error) -> BatchError {
    BatchError {
        id: None,
        code: error.kind().into(),
        message: format!(
            "{LOST_IN_A_ROW} tasks in a row got no sandbox, so no more were started; the last error: {error}"
        ),
    }
}

/// Writes events, blocking until the socket accepts them.
struct Writer<'a> {
    socket: &'a OwnedFd,
    unanswered: &'a Unanswered,
    bytes: Vec<u8>,
}

impl Writer<'_> {
    fn send_event(&mut self, answer: &ClientEvent, payload: &[u8]) -> Result<(), Errno> {
        self.add(answer, payload);
        self.flush()
    }

    fn error(&mut self, error: BatchError) -> Result<(), Errno> {
        let answer = ClientEvent::Error {
            id: error.id,
            error: error.code,
            message: error.message,
            errno: None,
            why: None,
        };
        self.send_event(&answer, &[])
    }

    /// Writes a result: the task's output, and its outcome.
    fn done(&mut self, done: Done) -> Result<(), Errno> {
        let TaskId::Number(id) = *done.id() else {
            return Ok(());
        };
        // Before the caller can see the answer and send another task.
        self.unanswered.remove();
        let (id, attempts) = (id.cast_unsigned(), done.attempts());
        let verdict = done.verdict.clone();
        let mut outcome = match done.into_result() {
            Ok(outcome) => outcome,
            Err(error) => {
                let lost = TaskLoss {
                    id,
                    attempts,
                    error: error.kind().into(),
                    message: error.to_string(),
                };
                return self.send_event(&ClientEvent::Lost(lost), &[]);
            }
        };
        for (stream, bytes) in [
            ("stdout", outcome.stdout_bytes()),
            ("stderr", outcome.stderr_bytes()),
        ] {
            for piece in bytes.chunks(PIECE) {
                self.add(&ClientEvent::Output { id, stream }, piece);
                if self.bytes.len() >= PIECE {
                    self.flush()?;
                }
            }
        }
        let (value, buffers) = outcome.take_value();
        let done = TaskOutcome {
            id,
            attempts,
            enforced: outcome.enforced().clone(),
            outcome: WireOutcome(outcome),
            value,
            blob: buffers.as_ref().map(|buffers| buffers.blob().clone()),
            verdict,
        };
        let payload = buffers.as_ref().map(HeldBuffers::bytes);
        self.send_event(
            &ClientEvent::Done(Box::new(done)),
            payload.unwrap_or_default(),
        )
    }

    fn add(&mut self, answer: &ClientEvent, payload: &[u8]) {
        if let Err(error) = answer.encode_into(payload, &mut self.bytes) {
            let instead = ClientEvent::not_written(None, &error);
            _ = instead.encode_into(&[], &mut self.bytes);
        }
    }

    fn flush(&mut self) -> Result<(), Errno> {
        let mut sent = 0;
        while sent < self.bytes.len() {
            match send_some(self.socket.as_fd(), &self.bytes[sent..], &[]) {
                Ok(length) => sent += length,
                Err(Errno::EAGAIN) => {
                    wait([Some((self.socket.as_fd(), PollFlags::POLLOUT))], None)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.bytes.clear();
        Ok(())
    }
}
