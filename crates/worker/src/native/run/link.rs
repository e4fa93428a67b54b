//! The data socket, before Python uses it.

use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use nix::unistd::write;

use sandfork_jail::{DATA, sys};

/// The worker's end of the data socket. It stays open: Python may go on with it.
pub struct Link(ManuallyDrop<OwnedFd>);

impl Link {
    /// The socket that every worker has at its number.
    pub fn inherited() -> Self {
        Self(ManuallyDrop::new(sys::descriptors::inherited(DATA)))
    }

    /// Waits for what arrives next, and returns its first bytes without taking them: a descriptor may come with
    /// them, which is for Python.
    pub fn peek<'b>(&self, buffer: &'b mut [u8]) -> &'b [u8] {
        let length = self.receive(buffer, MsgFlags::MSG_PEEK);
        &buffer[..length]
    }

    /// Takes so many bytes.
    pub fn take(&self, length: usize) -> Vec<u8> {
        let mut taken = vec![0; length];
        let mut filled = 0;
        while filled < length {
            filled += self.receive(&mut taken[filled..], MsgFlags::empty());
        }
        taken
    }

    /// Receives some bytes. Ends the process if there is no supervisor any more.
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

    /// Sends bytes. If that fails, the guest has closed or broken the socket, or the supervisor is gone; the
    /// exit status still shows how the run ended.
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
