//! How a worker learns of a starter's link.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockType, recv};
use nix::sys::stat::fstat;

use crate::supervisor::descriptors::socket_pair;
use sandfork_jail::sys;

/// The socket over which a worker gets the links of its starters. The starter is a process that begins with the first
/// program.
#[derive(Debug)]
pub struct Summons {
    /// Readable when the worker is ready.
    pub socket: OwnedFd,
    /// The inode of the worker's end.
    pub peer: u64,
    /// Whether the worker has said that it may get the signal.
    is_ready: bool,
}

impl Summons {
    /// Makes one. Returns the worker's end too.
    pub fn new() -> Result<(Self, OwnedFd), Errno> {
        let (socket, theirs) = socket_pair(SockType::Stream)?;
        let peer = fstat(&theirs)?.st_ino;
        let summons = Self {
            socket,
            peer,
            is_ready: false,
        };
        Ok((summons, theirs))
    }

    /// Whether the worker may get the signal.
    pub fn is_ready(&mut self) -> bool {
        // Where the worker has closed its end, the next step fails.
        self.is_ready = self.is_ready
            || recv(self.socket.as_raw_fd(), &mut [0; 1], MsgFlags::MSG_DONTWAIT)
                != Err(Errno::EAGAIN);
        self.is_ready
    }

    /// Why the worker could not start the last starter, if it has said so. Guest code may say the same.
    pub fn failure(&self) -> Option<Errno> {
        let mut errno = [0];
        match recv(self.socket.as_raw_fd(), &mut errno, MsgFlags::MSG_DONTWAIT) {
            Ok(1) => Some(Errno::from_raw(errno[0].into())),
            _ => None,
        }
    }

    /// Passes the worker a starter's link. Fails where the worker has left so many others unread that the socket takes
    /// no more: waiting would be for guest code.
    pub fn pass(&self, link: &OwnedFd) -> Result<(), Errno> {
        // What was said too late is of an earlier one.
        _ = recv(
            self.socket.as_raw_fd(),
            &mut [0; 64],
            MsgFlags::MSG_DONTWAIT,
        );
        sys::descriptors::send_some(self.socket.as_fd(), &[0], &[link.as_fd()]).map(drop)
    }
}
