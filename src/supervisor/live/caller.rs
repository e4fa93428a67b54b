//! The caller's side of a session.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use super::refusal::Refusal;
use crate::error::Cause;
use crate::protocol::{ClientEvent, ClientRequest, FrameLimits, Transport};
use crate::supervisor::drain::Stream;
use crate::supervisor::link::{Link, LinkError, Received};
use crate::supervisor::wait::wait;

/// The most output in one frame, bytes: well below the bound of a frame's payload.
pub const PIECE: usize = 1 << 20;

/// The data that travels with a message: bytes, or a file.
#[derive(Debug, Default)]
pub struct Payload {
    /// The frame's payload.
    pub bytes: Vec<u8>,
    /// The descriptor sent with the frame.
    pub passed: Option<OwnedFd>,
}

impl Payload {
    /// A payload of these bytes.
    pub const fn bytes(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            passed: None,
        }
    }

    /// A payload of this descriptor.
    pub const fn passed(fd: OwnedFd) -> Self {
        Self {
            bytes: Vec::new(),
            passed: Some(fd),
        }
    }
}

/// The result of receiving from a caller.
#[derive(Debug)]
pub enum CallerEvent {
    /// The caller sent a request.
    Request(ClientRequest, Payload),
    /// No message has arrived yet.
    Nothing,
    /// The caller disconnected.
    Gone,
    /// The message is malformed, so that the start of the next one is unknown. Holds the reason.
    Malformed(String),
}

/// The peer that sends requests and receives events. No method blocks.
pub trait Caller {
    /// Readable when a message may have arrived.
    /// `None` if it never has anything to say.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Bytes of events that are not sent yet.
    fn unsent(&self) -> usize {
        0
    }
    /// Sends more of them.
    fn flush(&mut self) {}
    /// Receives the next message, or returns `Nothing`. More messages may still be pending then;
    /// [`as_fd`](Self::as_fd) is readable in that case.
    fn recv(&mut self) -> CallerEvent {
        CallerEvent::Nothing
    }
    /// Sends an event.
    fn answer(&mut self, answer: ClientEvent, payload: Payload);
    /// Reports that a request was not carried out; `id` is its number, if it had one.
    fn refuse(&mut self, id: Option<u64>, refusal: Refusal);
    /// Whether it has asked for a count of the processor time between cells since this was asked last.
    fn takes_count(&mut self) -> bool {
        false
    }
    /// Counts processor time that was used between two cells.
    fn note_between_cells(&mut self, _: Duration) {}
    /// Sends output of a cell.
    fn output(&mut self, id: u64, stream: Stream, bytes: &[u8]) {
        let stream = match stream {
            Stream::Stdout => "stdout",
            Stream::Stderr => "stderr",
        };
        for piece in bytes.chunks(PIECE) {
            let event = ClientEvent::Output { id, stream };
            self.answer(event, Payload::bytes(piece.to_vec()));
        }
    }
}

/// Waits for a caller when there is nothing else to wait for. Returns its message, or
/// [`CallerEvent::Nothing`] after sending some of the pending events.
pub fn await_caller(caller: &mut dyn Caller) -> Result<CallerEvent, Errno> {
    let received = caller.recv();
    if !matches!(received, CallerEvent::Nothing) {
        return Ok(received);
    }
    wait([awaited(caller)], None)?;
    caller.flush();
    Ok(CallerEvent::Nothing)
}

/// Sends what is left to send while the caller reads, until `until` if there is one.
pub fn drain(caller: &mut dyn Caller, until: Option<Instant>) -> Result<(), Errno> {
    while caller.unsent() > 0 && until.is_none_or(|until| Instant::now() < until) {
        let room = caller.as_fd().map(|fd| (fd, PollFlags::POLLOUT));
        wait([room], until)?;
        caller.flush();
    }
    Ok(())
}

/// What to wait for from a caller.
pub fn awaited(caller: &dyn Caller) -> Option<(BorrowedFd<'_>, PollFlags)> {
    Some((caller.as_fd()?, readable_or_writable(caller.unsent())))
}

/// What to wait for at a descriptor for which there are so many unsent bytes.
pub fn readable_or_writable(unsent: usize) -> PollFlags {
    let mut events = PollFlags::POLLIN;
    events.set(PollFlags::POLLOUT, unsent > 0);
    events
}

/// A caller at the other end of a stream socket.
#[derive(Debug)]
pub struct FrameCaller {
    link: Link<Arc<OwnedFd>>,
    /// Whether the last call read from the socket for the message that it returned.
    has_read: bool,
}

impl FrameCaller {
    /// A caller at the other end of this socket.
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

    fn next(&mut self) -> Option<CallerEvent> {
        let frame = self.link.next()?;
        let received = ClientRequest::parse(&frame).map_err(|error| error.to_string());
        let received = received.and_then(|ask| {
            let comes_with_file = match &ask {
                ClientRequest::Open(open) => open.stdin,
                ask => ask
                    .blob()
                    .is_some_and(|blob| blob.transport() == Transport::Passed),
            };
            let passed = comes_with_file.then(|| self.link.take_passed()).transpose();
            let passed = passed.map_err(|error: LinkError| error.to_string())?;
            let payload = Payload {
                bytes: frame.payload,
                passed,
            };
            Ok(CallerEvent::Request(ask, payload))
        });
        Some(received.unwrap_or_else(CallerEvent::Malformed))
    }
}

impl Caller for FrameCaller {
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.link.as_fd())
    }

    fn unsent(&self) -> usize {
        self.link.unsent
    }

    fn flush(&mut self) {
        self.link.flush();
    }

    fn recv(&mut self) -> CallerEvent {
        if let Some(received) = self.next() {
            return received;
        }
        if mem::take(&mut self.has_read) {
            // Usually only one message is in flight. The next poll(2) reports for free whether
            // there is another.
            return CallerEvent::Nothing;
        }
        match self.link.receive() {
            Ok(Received::Some) => {
                let next = self.next();
                self.has_read = next.is_some();
                next.unwrap_or(CallerEvent::Nothing)
            }
            Ok(Received::Nothing) => CallerEvent::Nothing,
            Ok(Received::End) => CallerEvent::Gone,
            Err(error) => CallerEvent::Malformed(error.to_string()),
        }
    }

    fn answer(&mut self, answer: ClientEvent, payload: Payload) {
        let (mut bytes, mut passed) = (Vec::new(), payload.passed);
        if let Err(error) = answer.encode_into(&payload.bytes, &mut bytes) {
            // It fits the worker's limits but exceeds those of the caller. The error in its place does not.
            let instead = ClientEvent::not_written(answer.id(), &error);
            _ = instead.encode_into(&[], &mut bytes);
            passed = None;
        }
        self.link.send(bytes, passed);
    }

    fn refuse(&mut self, id: Option<u64>, refusal: Refusal) {
        let event = ClientEvent::Error {
            id,
            error: refusal.code(),
            message: refusal.to_string(),
            errno: refusal.errno(),
            why: refusal.why().map(str::to_owned),
        };
        self.answer(event, Payload::default());
    }
}
