//! Passes a worker the link of its starter.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockType, recv};
use nix::sys::stat::fstat;

use crate::supervisor::descriptors::socket_pair;
use sandfork_jail::sys;

/// The socket over which a worker receives the links of its starters. A starter is a process in the sandbox that spawns
/// programs; it is started with the first program.
#[derive(Debug)]
pub struct StarterSocket {
    /// Readable when the worker is ready.
    pub socket: OwnedFd,
    /// The inode of the worker's end.
    pub peer: u64,
    /// Whether the worker has reported that it handles the signal.
    is_ready: bool,
}

impl StarterSocket {
    /// Creates the socket. Also returns the worker's end.
    pub fn new() -> Result<(Self, OwnedFd), Errno> {
        let (socket, theirs) = socket_pair(SockType::Stream)?;
        let peer = fstat(&theirs)?.st_ino;
        let starter_socket = Self {
            socket,
            peer,
            is_ready: false,
        };
        Ok((starter_socket, theirs))
    }

    /// Whether the worker handles the signal.
    pub fn is_ready(&mut self) -> bool {
        // If the worker has closed its end, the next step fails.
        self.is_ready = self.is_ready
            || recv(self.socket.as_raw_fd(), &mut [0; 1], MsgFlags::MSG_DONTWAIT)
                != Err(Errno::EAGAIN);
        self.is_ready
    }

    /// Returns why the worker could not start the last starter, if it has reported an error. Guest code can forge this.
    pub fn failure(&self) -> Option<Errno> {
        let mut errno = [0];
        match recv(self.socket.as_raw_fd(), &mut errno, MsgFlags::MSG_DONTWAIT) {
            Ok(1) => Some(Errno::from_raw(errno[0].into())),
            _ => None,
        }
    }

    /// Passes a starter's link to the worker. Fails if the socket is full because the worker has left too many links
    /// unread: waiting would block on guest code.
    pub fn pass(&self, link: &OwnedFd) -> Result<(), Errno> {
        // Discard late reports about earlier starters.
        _ = recv(
            self.socket.as_raw_fd(),
            &mut [0; 64],
            MsgFlags::MSG_DONTWAIT,
        );
        sys::descriptors::send_some(self.socket.as_fd(), &[0], &[link.as_fd()]).map(drop)
    }
}
