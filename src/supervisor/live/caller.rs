//! The other end of a session: whoever asks.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::poll::PollFlags;

use crate::protocol::{Answer, Ask, FrameLimits, MessageError, Way};
use crate::supervisor::link::{Link, LinkError, Received};
use crate::supervisor::wait::wait;

/// What travels with a message: bytes, or a file.
#[derive(Debug, Default)]
pub struct Payload {
    /// The frame's payload.
    pub bytes: Vec<u8>,
    /// What was passed with it.
    pub passed: Option<OwnedFd>,
}

impl Payload {
    /// These bytes.
    pub const fn bytes(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            passed: None,
        }
    }

    /// This descriptor.
    pub const fn passed(fd: OwnedFd) -> Self {
        Self {
            bytes: Vec::new(),
            passed: Some(fd),
        }
    }
}

/// What listening to a caller gave.
#[derive(Debug)]
pub enum Hearing {
    /// It asks for something.
    Ask(Ask, Payload),
    /// Nothing, for now.
    Nothing,
    /// It is gone.
    Gone,
    /// What it said is not understood, and where the next message begins is not known: why.
    Garbled(String),
}

/// Whoever asks, and is answered. Nothing here waits.
pub trait Caller {
    /// Readable when there may be something to hear.
    fn as_fd(&self) -> BorrowedFd<'_>;
    /// Bytes of answers that are not sent yet.
    fn unsent(&self) -> usize;
    /// Sends more of them.
    fn flush(&mut self);
    /// Listens: tells what has come, message by message, and then `Nothing`. There may be more even so,
    /// and then [`as_fd`](Self::as_fd) is readable.
    fn hear(&mut self) -> Hearing;
    /// Answers.
    fn answer(&mut self, answer: Answer, payload: Payload);
}

/// Listens to a caller while there is nothing else to listen to: what it says, or [`Hearing::Nothing`]
/// after some of its answers were sent.
pub fn await_caller(caller: &mut dyn Caller) -> Result<Hearing, Errno> {
    let heard = caller.hear();
    if !matches!(heard, Hearing::Nothing) {
        return Ok(heard);
    }
    let mut events = PollFlags::POLLIN;
    events.set(PollFlags::POLLOUT, caller.unsent() > 0);
    wait([Some((caller.as_fd(), events))], None)?;
    caller.flush();
    Ok(Hearing::Nothing)
}

/// A caller at the other end of a stream socket.
#[derive(Debug)]
pub struct FrameCaller {
    link: Link<Arc<OwnedFd>>,
    /// Whether what is told just now was read for it.
    has_read: bool,
}

impl FrameCaller {
    /// The caller at the other end of this socket.
    ///
    /// # Errors
    ///
    /// When the socket cannot be made non-blocking.
    pub fn new(socket: Arc<OwnedFd>) -> Result<Self, Errno> {
        let link = Link::new(socket, FrameLimits::FROM_CALLER)?;
        Ok(Self {
            link,
            has_read: false,
        })
    }

    fn next(&mut self) -> Option<Hearing> {
        let frame = self.link.next()?;
        let heard = Ask::parse(&frame).map_err(|error| error.to_string());
        let heard = heard.and_then(|ask| {
            let comes_with_file = match &ask {
                Ask::Open(open) => open.stdin,
                ask => ask.blob().is_some_and(|blob| blob.way() == Way::Passed),
            };
            let passed = comes_with_file.then(|| self.link.take_passed()).transpose();
            let passed = passed.map_err(|error: LinkError| error.to_string())?;
            let payload = Payload {
                bytes: frame.payload,
                passed,
            };
            Ok(Hearing::Ask(ask, payload))
        });
        Some(heard.unwrap_or_else(Hearing::Garbled))
    }
}

impl Caller for FrameCaller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    fn unsent(&self) -> usize {
        self.link.unsent()
    }

    fn flush(&mut self) {
        self.link.flush();
    }

    fn hear(&mut self) -> Hearing {
        if let Some(heard) = self.next() {
            return heard;
        }
        if mem::take(&mut self.has_read) {
            // Mostly one message at a time is on its way: whether there is another, poll(2) tells
            // for nothing.
            return Hearing::Nothing;
        }
        match self.link.receive() {
            Ok(Received::Some) => {
                let next = self.next();
                self.has_read = next.is_some();
                next.unwrap_or(Hearing::Nothing)
            }
            Ok(Received::Nothing) => Hearing::Nothing,
            Ok(Received::End) => Hearing::Gone,
            Err(error) => Hearing::Garbled(error.to_string()),
        }
    }

    fn answer(&mut self, answer: Answer, payload: Payload) {
        let mut bytes = Vec::new();
        match answer.encode_into(&payload.bytes, &mut bytes) {
            Ok(()) => self.link.send(bytes, payload.passed),
            Err(error) => self.answer_instead(&answer, &error),
        }
    }
}

impl FrameCaller {
    /// What a worker said was within its bounds, and is over those of a caller: say so.
    fn answer_instead(&mut self, answer: &Answer, error: &MessageError) {
        let id = match answer {
            Answer::Outcome(outcome) => Some(outcome.id),
            Answer::Call(call) => Some(call.id),
            Answer::Display(display) => Some(display.id),
            Answer::File { id, .. } => Some(*id),
            _ => None,
        };
        let instead = Answer::Error {
            id,
            error: crate::protocol::caller::ErrorWord::Protocol,
            message: format!("an answer could not be written: {error}"),
            errno: None,
        };
        let mut bytes = Vec::new();
        if instead.encode_into(&[], &mut bytes).is_ok() {
            self.link.send(bytes, None);
        }
    }
}
