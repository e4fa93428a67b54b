//! The descriptors that connect a supervisor with its zygotes and workers.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::pipe2;
use serde::Serialize;
use serde::de::DeserializeOwned;

use sandfork_jail::control::MAX_MESSAGE;
use sandfork_jail::sys::descriptors::{receive, send};

/// Makes a pair of connected unix sockets, close-on-exec.
pub fn socket_pair(kind: SockType) -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)
}

/// Makes a pipe, read end first, close-on-exec.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    pipe2(OFlag::O_CLOEXEC)
}

/// Makes reads and writes return instead of block.
pub fn set_nonblocking(fd: impl AsFd) -> Result<(), Errno> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)
}

/// Sends one control message.
pub fn send_message(
    socket: BorrowedFd,
    message: &impl Serialize,
    fds: &[BorrowedFd],
) -> Result<(), Errno> {
    let bytes = serde_json::to_vec(message).map_err(|_| Errno::EINVAL)?;
    if bytes.len() > MAX_MESSAGE {
        return Err(Errno::EMSGSIZE);
    }
    send(socket, &bytes, fds)
}

/// Receives one control message. Returns `None` at end of file.
pub fn recv_message<M: DeserializeOwned>(
    socket: BorrowedFd,
) -> Result<Option<(M, Vec<OwnedFd>)>, Errno> {
    let mut buffer = [0; 4096];
    let (length, fds) = receive(socket, &mut buffer)?;
    if length == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&buffer[..length]).map_err(|_| Errno::EPROTO)?;
    Ok(Some((message, fds)))
}
