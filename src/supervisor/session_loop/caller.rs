//! The caller of a session, and its implementation over a stream socket.

use std::mem;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use super::refusal::Refusal;
use crate::error::Cause;
use crate::protocol::{ClientEvent, ClientRequest, FrameLimits, Transport};
use crate::supervisor::clock;
use crate::supervisor::drain::Stream;
use crate::supervisor::link::{Link, LinkError, Received};
use crate::supervisor::wait::wait;

/// The most output in one frame, bytes: well below the limit on a frame's payload.
pub const PIECE: usize = 1 << 20;

/// The data that travels with a message: bytes, or a file.
#[derive(Debug, Default)]
pub struct Payload {
    /// The frame's payload.
    pub bytes: Vec<u8>,
    /// The descriptor that is sent with the frame.
    pub passed: Option<OwnedFd>,
}

impl Payload {
    /// Creates a payload of these bytes.
    pub const fn bytes(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            passed: None,
        }
    }

    /// Creates a payload of this descriptor.
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
    /// The caller has disconnected.
    Gone,
    /// The message is malformed, so that the start of the next one is unknown. Holds the reason.
    Malformed(String),
}

/// The peer that sends requests to a session and receives its events. No method blocks.
pub trait Caller {
    /// Returns a descriptor that is readable when a message may have arrived; `None` if the caller never sends any.
    fn as_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
    /// Returns the bytes of events that are not sent yet.
    fn unsent(&self) -> usize {
        0
    }
    /// Sends unsent events, as far as possible now.
    fn flush(&mut self) {}
    /// Receives the next message, or returns `Nothing`. More messages may be pending then; if so,
    /// [`as_fd`](Self::as_fd) is readable.
    fn recv(&mut self) -> CallerEvent {
        CallerEvent::Nothing
    }
    /// Sends an event.
    fn answer(&mut self, answer: ClientEvent, payload: Payload);
    /// Reports that a request was refused; `id` is its number, if it had one.
    fn refuse(&mut self, id: Option<u64>, refusal: Refusal);
    /// Whether the caller has requested a count of the CPU time between cells since this method was last called.
    fn takes_count(&mut self) -> bool {
        false
    }
    /// Adds CPU time that was used between two cells.
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

/// Waits for a caller alone. Returns its message, or [`CallerEvent::Nothing`] after sending some of the pending events.
pub fn await_caller(caller: &mut dyn Caller) -> Result<CallerEvent, Errno> {
    let received = caller.recv();
    if !matches!(received, CallerEvent::Nothing) {
        return Ok(received);
    }
    wait([awaited(caller)], None)?;
    caller.flush();
    Ok(CallerEvent::Nothing)
}

/// Sends all unsent events as the caller reads them, until `until` on the clock of guests at the latest.
pub fn drain(caller: &mut dyn Caller, until: Option<Instant>) -> Result<(), Errno> {
    while caller.unsent() > 0 && until.is_none_or(|until| clock::now() < until) {
        let room = caller.as_fd().map(|fd| (fd, PollFlags::POLLOUT));
        wait([room], until)?;
        caller.flush();
    }
    Ok(())
}

/// Returns the descriptor of a caller and the events to poll for.
pub fn awaited(caller: &dyn Caller) -> Option<(BorrowedFd<'_>, PollFlags)> {
    Some((caller.as_fd()?, readable_or_writable(caller.unsent())))
}

/// Returns the events to poll for at a descriptor for which `unsent` bytes are queued.
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
    /// Creates a caller at the other end of this socket.
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
        let received = received.and_then(|request| {
            let comes_with_file = match &request {
                ClientRequest::Open(open) => open.stdin,
                request => request
                    .blob()
                    .is_some_and(|blob| blob.transport() == Transport::Passed),
            };
            let passed = comes_with_file.then(|| self.link.take_passed()).transpose();
            let passed = passed.map_err(|error: LinkError| error.to_string())?;
            let payload = Payload {
                bytes: frame.payload,
                passed,
            };
            Ok(CallerEvent::Request(request, payload))
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
            // Usually only one message is in flight. The next poll(2) reports at no extra cost whether there is
            // another.
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
            // The event is within the limits for workers but exceeds those for callers. The error that replaces it does
            // not.
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
