//! The control socket, zygote side.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

use sandfork_jail::control::MAX_MESSAGE;
use sandfork_jail::sys::descriptors::{receive, send};

/// Sends one message.
pub fn send_message(
    socket: BorrowedFd,
    message: &impl Serialize,
    fds: &[BorrowedFd],
) -> Result<(), Errno> {
    let bytes = serde_json::to_vec(message).map_err(|_| Errno::EINVAL)?;
    send(socket, &bytes, fds)
}

/// Receives one message; `None` at the end.
pub fn recv_message<M: DeserializeOwned>(
    socket: &OwnedFd,
    buffer: &mut Vec<u8>,
) -> Result<Option<(M, Vec<OwnedFd>)>, Errno> {
    buffer.resize(MAX_MESSAGE, 0);
    let (length, fds) = receive(socket.as_fd(), buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&buffer[..length]).map_err(|_| Errno::EPROTO)?;
    Ok(Some((message, fds)))
}
