//! The supervisor's sockets in the event loop: the control socket and the links.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixDatagram as Datagrams;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use sandfork_jail::control::{recv_message, send_message};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::Interest;
use tokio::net::UnixDatagram;

/// A `SOCK_SEQPACKET` socket, which preserves message boundaries and reports EOF.
///
/// Tokio has no type for such sockets. Its datagram socket is used only to wait for readiness, which works the same.
#[derive(Debug)]
pub struct Packets(UnixDatagram);

impl Packets {
    /// Registers the socket with the event loop.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        let socket = nonblocking(socket)?;
        UnixDatagram::from_std(Datagrams::from(socket)).map(Self)
    }

    /// Receives a message, or `None` at EOF.
    pub async fn receive<M: DeserializeOwned>(
        &self,
        buffer: &mut [u8],
    ) -> Result<Option<(M, Vec<OwnedFd>)>, Errno> {
        loop {
            let ready = self.0.readable().await;
            ready.map_err(|_| Errno::EIO)?;
            let mut received = Err(Errno::EAGAIN);
            _ = self.0.try_io(Interest::READABLE, || {
                received = recv_message(self.0.as_fd(), buffer);
                // `WouldBlock` clears tokio's readiness, so that the next loop waits.
                received.as_ref().map(drop).map_err(|errno| (*errno).into())
            });
            match received {
                Err(Errno::EAGAIN) => {}
                other => return other,
            }
        }
    }

    /// Sends a message without waiting. Fails if the socket buffer is full.
    pub fn send(&self, message: &impl Serialize) -> Result<(), Errno> {
        send_message(self.0.as_fd(), message, &[])
    }
}

/// Sets `O_NONBLOCK`.
pub fn nonblocking(fd: OwnedFd) -> io::Result<OwnedFd> {
    fcntl(&fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(fd)
}
