//! The worker's end of the data socket, before Python uses it.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::write;

use sandfork_jail::{DATA, sys};

/// The data socket of the worker. It is never closed, because Python may continue to use it.
pub struct Link(ManuallyDrop<OwnedFd>);

impl Link {
    /// Wraps the socket that every worker has at its fixed number.
    pub fn inherited() -> Self {
        Self(ManuallyDrop::new(sys::descriptors::inherited(DATA)))
    }

    /// Waits for data and returns its first bytes without consuming them. A descriptor may be attached to them, which
    /// is for Python.
    pub fn peek<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8] {
        let length = self.receive(buffer, MsgFlags::MSG_PEEK);
        &buffer[..length]
    }

    /// Reads exactly `length` bytes.
    pub fn take(&self, length: usize) -> Vec<u8> {
        let mut taken = vec![0; length];
        let mut filled = 0;
        while filled < length {
            filled += self.receive(&mut taken[filled..], MsgFlags::empty());
        }
        taken
    }

    /// Receives some bytes. Exits the process at EOF or if the connection fails.
    fn receive(&self, buffer: &mut [u8], flags: MsgFlags) -> usize {
        loop {
            match recv(self.0.as_raw_fd(), buffer, flags) {
                Err(Errno::EINTR) => {}
                Ok(0) => sys::process::exit_now(0),
                Err(_) => sys::process::exit_now(1),
                Ok(length) => return length,
            }
        }
    }

    /// Sends bytes. Errors are ignored: the guest has closed or broken the socket, or the supervisor is gone. The exit
    /// status still shows how the run ended.
    pub fn send(&self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match write(&*self.0, bytes) {
                Err(Errno::EINTR) => {}
                Ok(written) if written > 0 => bytes = &bytes[written..],
                _ => return,
            }
        }
    }
}
