//! A link of frames over a stream socket: never waits, and holds no more than it must.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::descriptors::set_nonblocking;
use crate::protocol::{Decoder, Frame, FrameError, FrameLimits};
use crate::sys::descriptors::{receive, send_some};

/// As much as is read at once.
const CHUNK: usize = 64 * 1024;

/// The most descriptors that may have arrived ahead of the frames that they belong to.
const MAX_AHEAD: usize = 32;

/// One end of a link.
#[derive(Debug)]
pub struct Link<S> {
    socket: S,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    /// Descriptors that arrived, oldest first: each frame that announces one takes the next.
    arrived: VecDeque<OwnedFd>,
    outgoing: VecDeque<Outgoing>,
    /// Bytes in `outgoing`.
    unsent: usize,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// Goes with the first byte.
    passed: Option<OwnedFd>,
}

/// What reading found.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Received {
    /// Bytes, perhaps with whole frames in them.
    Some,
    /// Nothing, for now.
    Nothing,
    /// The other end is closed.
    End,
}

/// Why nothing more can be read from a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// What came are not frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// More descriptors came than frames announced.
    #[error("descriptors came that no frame announced")]
    Descriptors,
    /// A frame announced a descriptor that did not come.
    #[error("a frame announced a descriptor that did not come")]
    Missing,
}

impl<S: AsFd> Link<S> {
    /// Frames over this socket, which does not block from here on.
    pub fn new(socket: S, limits: FrameLimits) -> Result<Self, Errno> {
        set_nonblocking(&socket)?;
        Ok(Self {
            socket,
            decoder: Decoder::new(limits),
            frames: VecDeque::new(),
            arrived: VecDeque::new(),
            outgoing: VecDeque::new(),
            unsent: 0,
            buffer: vec![0; CHUNK],
        })
    }

    /// Bytes that were queued and not sent yet.
    pub fn unsent(&self) -> usize {
        self.unsent
    }

    /// Queues a frame's bytes and sends what can be sent now. A link whose other end is closed takes
    /// everything: reading says so.
    pub fn send(&mut self, bytes: Vec<u8>, passed: Option<OwnedFd>) {
        self.unsent += bytes.len();
        self.outgoing.push_back(Outgoing {
            bytes,
            sent: 0,
            passed,
        });
        self.flush();
    }

    /// Sends what was queued, as far as the socket takes it now.
    pub fn flush(&mut self) {
        while let Some(first) = self.outgoing.front_mut() {
            let passed: Vec<BorrowedFd> = first.passed.iter().map(AsFd::as_fd).collect();
            match send_some(self.socket.as_fd(), &first.bytes[first.sent..], &passed) {
                Ok(length) => {
                    first.passed = None;
                    first.sent += length;
                    self.unsent -= length;
                    if first.sent == first.bytes.len() {
                        self.outgoing.pop_front();
                    }
                }
                Err(Errno::EAGAIN) => return,
                Err(_) => {
                    self.outgoing.clear();
                    self.unsent = 0;
                }
            }
        }
    }

    /// Reads once: a peer that floods its link must not keep the caller from the clocks.
    ///
    /// # Errors
    ///
    /// When what came are not frames, or too many descriptors came. The link is dead then.
    pub fn receive(&mut self) -> Result<Received, LinkError> {
        let (length, fds) = match receive(self.socket.as_fd(), &mut self.buffer) {
            Err(Errno::EAGAIN) => return Ok(Received::Nothing),
            Err(Errno::EMSGSIZE) => return Err(LinkError::Descriptors),
            // An error is a reset, by a peer that ended with something unread.
            Err(_) | Ok((0, _)) => return Ok(Received::End),
            Ok(received) => received,
        };
        self.arrived.extend(fds);
        let mut input = &self.buffer[..length];
        while let Some(frame) = self.decoder.decode(&mut input)? {
            self.frames.push_back(frame);
        }
        if self.arrived.len() > MAX_AHEAD {
            return Err(LinkError::Descriptors);
        }
        Ok(Received::Some)
    }

    /// The next whole frame that has come.
    pub fn next(&mut self) -> Option<Frame> {
        self.frames.pop_front()
    }

    /// The descriptor that came with the frame that was just taken and announced one.
    ///
    /// # Errors
    ///
    /// When none came.
    pub fn take_passed(&mut self) -> Result<OwnedFd, LinkError> {
        self.arrived.pop_front().ok_or(LinkError::Missing)
    }
}

impl<S: AsFd> AsFd for Link<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
