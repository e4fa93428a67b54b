//! The caller of a session in the same process: its requests cross a queue instead of a socket.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::SessionError;
use crate::error::Error;
use crate::protocol::caller::{ClientEvent, ClientRequest};
use crate::supervisor::{Caller, CallerEvent, Payload, Refusal};

/// An event, or why a request was not carried out.
type Answer = Result<(ClientEvent, Payload), Error>;

/// The answers that a session receives.
pub type Answers = Receiver<Answer>;

/// The two ends between a session and its thread, and the receiver of events.
pub fn link() -> Result<(Asker, ThreadCaller, Answers), SessionError> {
    let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
    let bell = EventFd::from_flags(flags).map_err(|errno| SessionError::Tie(errno.into()))?;
    let asked = Arc::new(Asked {
        bell,
        queue: Mutex::default(),
    });
    let (answers, answered) = channel();
    let caller = ThreadCaller {
        asked: Arc::clone(&asked),
        answers,
    };
    Ok((Asker(asked), caller, answered))
}

#[derive(Debug)]
struct Asked {
    /// Written to after a request was put into the queue.
    bell: EventFd,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    asks: VecDeque<(ClientRequest, Payload)>,
    is_disconnected: bool,
}

/// The session's end of the queue.
#[derive(Clone, Debug)]
pub struct Asker(Arc<Asked>);

impl Asker {
    /// Queues a request. Its events arrive later.
    pub fn ask(&self, ask: ClientRequest, payload: Payload) {
        self.change(|queue| queue.asks.push_back((ask, payload)));
    }

    /// Disconnects: no further requests follow.
    pub fn disconnect(&self) {
        self.change(|queue| queue.is_disconnected = true);
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let queue = self.0.queue.lock();
        change(&mut queue.unwrap_or_else(PoisonError::into_inner));
        // Fails only after 2^64 writes.
        _ = self.0.bell.write(1);
    }
}

/// The thread's end of the queue.
#[derive(Debug)]
pub struct ThreadCaller {
    asked: Arc<Asked>,
    answers: Sender<Answer>,
}

impl Caller for ThreadCaller {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.asked.bell.as_fd())
    }

    /// The channel is unbounded: what one cell may send is bounded.
    fn unsent(&self) -> usize {
        0
    }

    fn flush(&mut self) {}

    fn recv(&mut self) -> CallerEvent {
        let queue = self.asked.queue.lock();
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        if queue.is_disconnected {
            return CallerEvent::Gone;
        }
        if let Some((ask, payload)) = queue.asks.pop_front() {
            return CallerEvent::Request(ask, payload);
        }
        // Done while the queue is locked, so that a request added meanwhile is not missed.
        _ = self.asked.bell.read();
        CallerEvent::Nothing
    }

    fn answer(&mut self, answer: ClientEvent, payload: Payload) {
        // Fails if the session was dropped. It then disconnected, which is received next.
        _ = self.answers.send(Ok((answer, payload)));
    }

    fn refuse(&mut self, _: Option<u64>, refusal: Refusal) {
        _ = self.answers.send(Err(refusal.into()));
    }
}
