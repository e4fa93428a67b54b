//! The caller of a session in the same process: what it asks crosses a queue, not a socket.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};

use super::SessionError;
use crate::protocol::caller::{Answer, Ask};
use crate::supervisor::{Caller, Hearing, Payload};

/// What a session hears.
pub type Answers = Receiver<(Answer, Payload)>;

/// The two ends between a session and its thread: what asks, what hears, and the answers.
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
    /// Rung when something was put into the queue.
    bell: EventFd,
    queue: Mutex<Queue>,
}

#[derive(Debug, Default)]
struct Queue {
    asks: VecDeque<(Ask, Payload)>,
    hung_up: bool,
}

/// The session's end.
#[derive(Clone, Debug)]
pub struct Asker(Arc<Asked>);

impl Asker {
    /// Asks; the answers come when they come.
    pub fn ask(&self, ask: Ask, payload: Payload) {
        self.change(|queue| queue.asks.push_back((ask, payload)));
    }

    /// Asks for nothing more.
    pub fn hang_up(&self) {
        self.change(|queue| queue.hung_up = true);
    }

    fn change(&self, change: impl FnOnce(&mut Queue)) {
        let queue = self.0.queue.lock();
        change(&mut queue.unwrap_or_else(PoisonError::into_inner));
        // Fails only when it was rung 2^64 times.
        _ = self.0.bell.write(1);
    }
}

/// The thread's end.
#[derive(Debug)]
pub struct ThreadCaller {
    asked: Arc<Asked>,
    answers: Sender<(Answer, Payload)>,
}

impl Caller for ThreadCaller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.asked.bell.as_fd()
    }

    /// The channel takes everything: what one cell may say is bounded.
    fn unsent(&self) -> usize {
        0
    }

    fn flush(&mut self) {}

    fn hear(&mut self) -> Hearing {
        let queue = self.asked.queue.lock();
        let mut queue = queue.unwrap_or_else(PoisonError::into_inner);
        if queue.hung_up {
            return Hearing::Gone;
        }
        if let Some((ask, payload)) = queue.asks.pop_front() {
            return Hearing::Ask(ask, payload);
        }
        // While the queue is locked, so that nothing put into it meanwhile goes unheard.
        _ = self.asked.bell.read();
        Hearing::Nothing
    }

    fn answer(&mut self, answer: Answer, payload: Payload) {
        // A session that is gone has hung up, which is heard next.
        _ = self.answers.send((answer, payload));
    }
}
