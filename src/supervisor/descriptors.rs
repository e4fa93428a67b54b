//! The descriptors that connect a supervisor with its zygotes and workers.

use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::pipe2;
use serde::de::DeserializeOwned;

use sandfork_jail::control::recv_message;

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

/// The largest message that a zygote or the init of a worker sends, bytes.
const MAX_REPORT: usize = 4096;

/// Receives one report of a zygote or of a worker's init. Returns `None` at end of file.
pub fn recv_report<M: DeserializeOwned>(
    socket: BorrowedFd,
) -> Result<Option<(M, Vec<OwnedFd>)>, Errno> {
    recv_message(socket, &mut [0; MAX_REPORT])
}

/// How much is read at once, bytes: the capacity of a pipe.
pub const CHUNK: usize = 64 * 1024;

/// Lends a buffer of [`CHUNK`] bytes. A thread has one for all its workers, and makes another only for a call
/// within a call.
pub fn with_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    thread_local! {
        static BUFFER: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    }
    let mut buffer = BUFFER.take();
    buffer.resize(CHUNK, 0);
    let done = read(&mut buffer);
    BUFFER.set(buffer);
    done
}
