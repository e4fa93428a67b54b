//! Connects a session to its thread in the same process: requests cross a queue instead of a socket.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::error::{Error, ErrorKind};
use crate::host::io_exhaustion_hint;
use crate::protocol::caller::{ClientEvent, ClientRequest, Presence};
use crate::supervisor::{Caller, CallerEvent, Payload, Refusal};
use crate::waiters::lock;

/// An event, or why a request failed, with the request's number if it has one.
type Event = Result<(ClientEvent, Payload), (Option<u64>, Error)>;

/// The events that a session receives.
#[derive(Debug)]
pub struct Events(Receiver<Event>);

impl Events {
    /// Returns the next event of the request with this number, or an event without a number. Drops events of an earlier
    /// request whose caller panicked.
    pub fn next(&self, request: u64) -> Result<(ClientEvent, Payload), Error> {
        let is_of_other_request = |id: Option<u64>| id.is_some_and(|id| id != request);
        loop {
            match self.0.recv().map_err(|_| thread_ended())? {
                Ok((event, _)) if is_of_other_request(event.id()) => {}
                Err((id, _)) if is_of_other_request(id) => {}
                Ok(event) => return Ok(event),
                Err((_, error)) => return Err(error),
            }
        }
    }

    /// Waits until the request with this number has ended, and drops all events until then.
    pub fn await_end(&self, request: u64) {
        let is_end = |event: &Event| match event {
            Ok((ClientEvent::Outcome(ended), _)) => ended.id == request,
            Ok(_) => false,
            // An error without a number concerns the worker.
            Err((id, _)) => id.is_none_or(|id| id == request),
        };
        _ = self.0.iter().find(is_end);
    }

    /// Drops the events that have arrived so far.
    pub fn discard_pending(&self) {
        self.0.try_iter().for_each(drop);
    }
}

/// Creates the two ends between a session and its thread, and the receiver of events.
pub fn link() -> Result<(RequestSender, ThreadCaller, Events), Error> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let wakeup = EventFd::from_flags(flags).map_err(|errno| {
        let problem = "the session could not be connected to its thread";
        start_error(problem, &errno.into())
    })?;
    let requests = Arc::new(RequestQueue {
        wakeup,
        queue: Mutex::default(),
    });
    let (sender, events) = channel();
    let caller = ThreadCaller {
        requests: Arc::clone(&requests),
        events: sender,
    };
    Ok((RequestSender(requests), caller, Events(events)))
}

/// Returns the error for a session whose thread has ended.
pub(super) fn thread_ended() -> Error {
    Error::new(
        ErrorKind::SessionEnded,
        "the session's thread has ended, and its worker with it: open another session",
    )
}

/// Returns the error for a session whose thread cannot be started for lack of kernel resources.
pub(super) fn start_error(problem: &str, cause: &io::Error) -> Error {
    let remedy = io_exhaustion_hint(cause, "try again");
    Error::new(ErrorKind::System, format!("{problem}: {cause}; {remedy}"))
}

#[derive(Debug)]
struct RequestQueue {
    /// Wakes the session's thread after a change of the queue.
    wakeup: EventFd,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    requests: VecDeque<(ClientRequest, Payload)>,
    is_disconnected: bool,
    is_paused: bool,
    /// The CPU time used between cells.
    between_cells: Duration,
    /// Whether the caller has requested an update of `between_cells`.
    counts_cpu: bool,
}

/// The session's end of the queue.
#[derive(Clone, Debug)]
pub struct RequestSender(Arc<RequestQueue>);

impl RequestSender {
    /// Enqueues a request. Its events arrive later.
    pub fn send(&self, request: ClientRequest, payload: Payload) {
        self.change(|queue| {
            // An interrupter outlives the session. Nothing would dequeue what it sends then.
            if !queue.is_disconnected {
                queue.requests.push_back((request, payload));
            }
        });
    }

    /// Disconnects: no further requests follow.
    pub fn disconnect(&self) {
        self.change(|queue| queue.is_disconnected = true);
    }

    /// Returns whether the session is paused.
    pub fn is_paused(&self) -> bool {
        lock(&self.0.queue).is_paused
    }

    /// Returns the CPU time used between cells, as of the last update.
    pub fn between_cells(&self) -> Duration {
        lock(&self.0.queue).between_cells
    }

    /// Requests an update of that time.
    pub fn count_cpu(&self) {
        self.change(|queue| queue.counts_cpu = true);
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        change(&mut lock(&self.0.queue));
        // Fails only after 2^64 writes.
        _ = self.0.wakeup.write(1);
    }
}

/// The thread's end of the queue.
#[derive(Debug)]
pub struct ThreadCaller {
    requests: Arc<RequestQueue>,
    /// Unbounded, because the output of one cell is bounded.
    events: Sender<Event>,
}

impl Caller for ThreadCaller {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.requests.wakeup.as_fd())
    }

    fn recv(&mut self) -> CallerEvent {
        let mut queue = lock(&self.requests.queue);
        if queue.is_disconnected {
            return CallerEvent::Gone;
        }
        if let Some((request, payload)) = queue.requests.pop_front() {
            return CallerEvent::Request(request, payload);
        }
        // Cleared under the queue's lock, so that a request added meanwhile is not missed.
        _ = self.requests.wakeup.read();
        CallerEvent::Nothing
    }

    fn answer(&mut self, event: ClientEvent, payload: Payload) {
        if let ClientEvent::State { session } = event {
            lock(&self.requests.queue).is_paused = session == Presence::Paused;
            return;
        }
        // Fails if the session was dropped. It then disconnected, which is received next.
        _ = self.events.send(Ok((event, payload)));
    }

    fn takes_count(&mut self) -> bool {
        mem::take(&mut lock(&self.requests.queue).counts_cpu)
    }

    fn note_between_cells(&mut self, used: Duration) {
        lock(&self.requests.queue).between_cells += used;
    }

    fn refuse(&mut self, id: Option<u64>, refusal: Refusal) {
        _ = self.events.send(Err((id, refusal.into())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_after_disconnect_is_dropped() {
        let (sender, caller, _events) = link().expect("a descriptor");
        sender.send(ClientRequest::Interrupt, Payload::default());
        sender.disconnect();
        sender.send(ClientRequest::Interrupt, Payload::default());
        let queue = caller.requests.queue.lock().expect("nothing panicked");
        assert_eq!(queue.requests.len(), 1);
    }
}
