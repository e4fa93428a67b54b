//! A non-blocking link that sends and receives frames, with descriptors, over a stream socket.

use std::collections::VecDeque;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{Shutdown, shutdown};

use super::descriptors::{set_nonblocking, with_buffer};
use crate::host::exhaustion_hint;
use crate::protocol::{Decoder, Frame, FrameError, FrameLimits};
use sandfork_jail::sys::descriptors::{receive, send_some};

/// The most descriptors that may arrive before the frames that announce them.
const MAX_AHEAD: usize = 32;

/// One end of a link.
#[derive(Debug)]
pub struct Link<S> {
    socket: S,
    decoder: Decoder,
    frames: VecDeque<Frame>,
    /// Received descriptors, oldest first. Each frame that announces a descriptor takes the next one.
    arrived: VecDeque<OwnedFd>,
    outgoing: VecDeque<Outgoing>,
    /// The number of queued bytes that are not sent yet.
    pub unsent: usize,
    /// The error because of which nothing can be sent, although the peer is still connected.
    failed: Option<Errno>,
}

#[derive(Debug)]
struct Outgoing {
    bytes: Vec<u8>,
    sent: usize,
    /// A descriptor to send with the first byte.
    passed: Option<OwnedFd>,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Received {
    /// Bytes arrived, and perhaps complete frames.
    Some,
    /// No bytes are available now.
    Nothing,
    /// The peer has closed its end.
    End,
}

/// Why a link can no longer be read.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The bytes are not valid frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// More descriptors arrived than frames announced.
    #[error("descriptors arrived that no frame announced")]
    Descriptors,
    /// A frame announced a descriptor that did not arrive.
    #[error("a frame announced a descriptor that did not arrive")]
    Missing,
    /// The socket cannot be read, this process has no descriptor number left for a received descriptor, or an earlier
    /// send failed.
    #[error("could not be read: {}; {}", .0.desc(), exhaustion_hint(*.0, "try again"))]
    Unreadable(Errno),
}

impl<S: AsFd> Link<S> {
    /// Creates a link over this socket, which becomes non-blocking.
    pub fn new(socket: S, limits: FrameLimits) -> Result<Self, Errno> {
        set_nonblocking(&socket)?;
        Ok(Self {
            socket,
            decoder: Decoder::new(limits),
            frames: VecDeque::new(),
            arrived: VecDeque::new(),
            outgoing: VecDeque::new(),
            unsent: 0,
            failed: None,
        })
    }

    /// Returns the number of frames that are queued and not sent completely.
    pub fn unsent_frames(&self) -> usize {
        self.outgoing.len()
    }

    /// Queues a frame and sends as much as possible now. If the peer has closed its end, everything is accepted and
    /// discarded; reading then reports EOF.
    pub fn send(&mut self, bytes: Vec<u8>, passed: Option<OwnedFd>) {
        self.unsent += bytes.len();
        self.outgoing.push_back(Outgoing {
            bytes,
            sent: 0,
            passed,
        });
        self.flush();
    }

    /// Sends as many queued bytes as the socket accepts now.
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
                Err(errno) => {
                    self.outgoing.clear();
                    self.unsent = 0;
                    if ![Errno::EPIPE, Errno::ECONNRESET].contains(&errno) {
                        // A frame may have been sent in part. Shut the socket down, so that the peer and pollers of
                        // this end see EOF.
                        self.failed.get_or_insert(errno);
                        _ = shutdown(self.socket.as_fd().as_raw_fd(), Shutdown::Both);
                    }
                }
            }
        }
    }

    /// Reads once, so that a peer that floods its link does not keep the caller from checking the clocks.
    ///
    /// # Errors
    ///
    /// When the bytes are not valid frames, or too many descriptors arrived. The link is unusable then.
    pub fn receive(&mut self) -> Result<Received, LinkError> {
        with_buffer(|buffer| self.receive_into(buffer))
    }

    fn receive_into(&mut self, buffer: &mut [u8]) -> Result<Received, LinkError> {
        if let Some(errno) = self.failed {
            return Err(LinkError::Unreadable(errno));
        }
        let (length, fds) = match receive(self.socket.as_fd(), buffer) {
            Err(Errno::EAGAIN) => return Ok(Received::Nothing),
            Err(Errno::EMSGSIZE) => return Err(LinkError::Descriptors),
            // A peer that exits with unread data resets the connection.
            Err(Errno::ECONNRESET) | Ok((0, _)) => return Ok(Received::End),
            Err(errno) => return Err(LinkError::Unreadable(errno)),
            Ok(received) => received,
        };
        self.arrived.extend(fds);
        let mut input = &buffer[..length];
        while let Some(frame) = self.decoder.decode(&mut input)? {
            self.frames.push_back(frame);
        }
        if self.arrived.len() > MAX_AHEAD {
            return Err(LinkError::Descriptors);
        }
        Ok(Received::Some)
    }

    /// Returns the next complete frame.
    pub fn next(&mut self) -> Option<Frame> {
        self.frames.pop_front()
    }

    /// Closes all received descriptors that no frame has taken.
    pub fn discard_passed(&mut self) {
        self.arrived.clear();
    }

    /// Returns the descriptor that the last frame announced.
    ///
    /// # Errors
    ///
    /// When no descriptor arrived.
    pub fn take_passed(&mut self) -> Result<OwnedFd, LinkError> {
        self.arrived.pop_front().ok_or(LinkError::Missing)
    }
}

impl<S: AsFd> AsFd for Link<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};

    use super::*;

    #[test]
    fn send_error_is_returned_by_receive() {
        let (family, flags) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
        let unconnected = socket(family, SockType::Stream, flags, None);
        let unconnected = unconnected.expect("a new socket");
        let mut link = Link::new(unconnected, FrameLimits::FROM_WORKER).expect("a new link");
        link.send(vec![0], None);
        assert_eq!(link.unsent, 0);
        let received = link.receive();
        assert!(
            matches!(received, Err(LinkError::Unreadable(Errno::ENOTCONN))),
            "{received:?}"
        );
    }

    #[test]
    fn closed_peer_ends_the_stream() {
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("a socket pair");
        let mut link = Link::new(one, FrameLimits::FROM_WORKER).expect("a new link");
        drop(other);
        link.send(vec![0], None);
        assert_eq!(link.receive().ok(), Some(Received::End));
    }
}
