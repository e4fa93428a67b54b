//! Creates and reads the descriptors that connect a supervisor with its zygotes and workers.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, TryLockError};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::{Uid, fchown, pipe2};
use serde::de::DeserializeOwned;

use sandfork_jail::control::recv_message;

/// Creates a pair of connected unix sockets, close-on-exec.
pub fn socket_pair(kind: SockType) -> Result<(OwnedFd, OwnedFd), Errno> {
    socketpair(AddressFamily::Unix, kind, None, SockFlag::SOCK_CLOEXEC)
}

/// Creates a pipe, read end first, close-on-exec.
pub fn pipe() -> Result<(OwnedFd, OwnedFd), Errno> {
    pipe2(OFlag::O_CLOEXEC)
}

/// Makes the guest's host user the owner of a pipe, because opening `/dev/stdout` opens the pipe anew, with the rights
/// of the guest (proc(5), `/proc/PID/fd`). If the supervisor may not change owners, guests cannot open it.
pub fn give_pipe(pipe: impl AsFd, uid: Option<u32>) {
    if let Some(uid) = uid {
        _ = fchown(pipe, Some(Uid::from_raw(uid)), None);
    }
}

/// Makes a descriptor non-blocking.
pub fn set_nonblocking(fd: impl AsFd) -> Result<(), Errno> {
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)
}

/// The size limit of a message about a worker from a zygote or the worker's init, bytes.
const MAX_REPORT: usize = 4096;

/// Receives one report about a worker. Returns `None` at EOF.
pub fn recv_report<M: DeserializeOwned>(
    socket: BorrowedFd,
) -> Result<Option<(M, Vec<OwnedFd>)>, Errno> {
    recv_message(socket, &mut [0; MAX_REPORT])
}

/// The size of a read, bytes: the capacity of a pipe.
pub const CHUNK: usize = 64 * 1024;

/// The most buffers that are kept while unused.
const MAX_SPARE: usize = 16;

/// Lends a buffer of [`CHUNK`] bytes. Buffers are shared by all threads, so that the thread of an idle session keeps
/// none.
pub fn with_buffer<T>(read: impl FnOnce(&mut [u8]) -> T) -> T {
    static SPARE: Mutex<Vec<Vec<u8>>> = Mutex::new(Vec::new());
    // Allocating a new buffer costs less than waiting for the lock.
    let spare = || match SPARE.try_lock() {
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        other => other.ok(),
    };
    let mut buffer = spare()
        .and_then(|mut spare| spare.pop())
        .unwrap_or_else(|| vec![0; CHUNK]);
    let done = read(&mut buffer);
    if let Some(mut spare) = spare().filter(|spare| spare.len() < MAX_SPARE) {
        spare.push(buffer);
    }
    done
}

/// Reads a range of a file, and passes it to `pass` in pieces of at most [`CHUNK`] bytes.
pub fn read_in_pieces(
    file: &File,
    part: Range<u64>,
    mut pass: impl FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut at = part.start;
    with_buffer(|buffer| {
        while at < part.end {
            let length = usize::try_from(part.end - at).unwrap_or(CHUNK).min(CHUNK);
            file.read_exact_at(&mut buffer[..length], at)?;
            pass(&buffer[..length])?;
            at += length as u64;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lent_buffer_is_not_lent_again() {
        let nested = with_buffer(|one| {
            one.fill(1);
            with_buffer(|other| other.fill(2));
            one.len() == CHUNK && one.iter().all(|byte| *byte == 1)
        });
        assert!(nested);
    }
}
