//! Takes ownership of descriptors that the kernel returns, and passes descriptors between processes (unix(7),
//! `SCM_RIGHTS`).

use std::io::IoSlice;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};

use super::{check, uninterrupted};

/// The maximum number of descriptors per message: a worker's directories plus its network sockets.
pub const MAX_PASSED: usize = 64;

/// Takes ownership of a descriptor that a system call just returned.
pub(crate) fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: every caller passes a descriptor that a successful call has just created, or placed at a number that no
    // value owns, so nothing else owns it. Descriptors fit in an int.
    #[allow(clippy::cast_possible_truncation)]
    unsafe {
        OwnedFd::from_raw_fd(fd as RawFd)
    }
}

/// Takes ownership of a descriptor that this process inherited by number.
///
/// # Panics
///
/// If the number is negative.
pub fn inherited(fd: RawFd) -> OwnedFd {
    assert!(fd >= 0, "an inherited descriptor has a number");
    // SAFETY: every caller names a number at which its parent has placed a descriptor. A caller either takes the number
    // only once in its process, or wraps the result in `ManuallyDrop`, so at most one owner closes the descriptor.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Sends one message with descriptors. `EMSGSIZE` if the socket accepts only a part of it.
pub fn send(socket: BorrowedFd, bytes: &[u8], fds: &[BorrowedFd]) -> Result<(), Errno> {
    match send_once(socket, bytes, fds, MsgFlags::empty())? {
        sent if sent < bytes.len() => Err(Errno::EMSGSIZE),
        _ => Ok(()),
    }
}

/// Sends as many bytes as the socket accepts without blocking, with descriptors attached to the first byte. Returns the
/// number of bytes sent.
///
/// `EAGAIN` if the socket accepts nothing; in that case the descriptors were not sent either.
pub fn send_some(socket: BorrowedFd, bytes: &[u8], fds: &[BorrowedFd]) -> Result<usize, Errno> {
    send_once(socket, bytes, fds, MsgFlags::MSG_DONTWAIT)
}

fn send_once(
    socket: BorrowedFd,
    bytes: &[u8],
    fds: &[BorrowedFd],
    flags: MsgFlags,
) -> Result<usize, Errno> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage] = if raw.is_empty() { &[] } else { &rights };
    let (socket, bytes) = (socket.as_raw_fd(), [IoSlice::new(bytes)]);
    let flags = MsgFlags::MSG_NOSIGNAL | flags;
    uninterrupted(|| sendmsg::<()>(socket, &bytes, control, flags, None))
}

/// Receives one message into `buffer`. Returns its length, 0 at EOF, and its descriptors.
///
/// Received descriptors are close-on-exec. A message or descriptor list that did not fit is `EMSGSIZE`; a message that
/// exceeds this process's descriptor limit is `EMFILE`. In both cases the descriptors that did arrive are closed. nix
/// would leak them: it returns none of a truncated list.
pub fn receive(socket: BorrowedFd, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    // An array of `u64`, because control message headers need that alignment.
    let mut control = [0_u64; CONTROL.div_ceil(size_of::<u64>())];
    let mut slice = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    // SAFETY: an all-zero `msghdr` is valid: null pointers and zero lengths.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    let length = loop {
        // SAFETY: the message points to `slice`, and through it to `buffer`, and to `control`. All of them outlive the
        // call and are as long as the message states.
        match Errno::result(unsafe {
            libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC)
        }) {
            Err(Errno::EINTR) => {}
            other => break other?.unsigned_abs(),
        }
    };
    let fds = passed(&message);
    if message.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0 {
        return Ok((length, fds));
    }
    let room = message.msg_flags & libc::MSG_CTRUNC != 0 && fds.len() < MAX_PASSED;
    Err(if room { Errno::EMFILE } else { Errno::EMSGSIZE })
}

/// The size of a control buffer for [`MAX_PASSED`] descriptors (cmsg(3)).
#[allow(clippy::cast_possible_truncation)] // of a few bytes
// SAFETY: CMSG_SPACE is arithmetic on its argument.
const CONTROL: usize =
    unsafe { libc::CMSG_SPACE((MAX_PASSED * size_of::<RawFd>()) as u32) } as usize;

/// Takes ownership of all descriptors in a message, even if the message is otherwise invalid.
#[allow(clippy::cast_ptr_alignment)] // it is read as if it had none
fn passed(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut fds = Vec::new();
    // SAFETY: the kernel has filled the control buffer, which outlives `message`, with complete headers. It has just
    // installed these descriptors in this process, so nothing else owns them.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(found) = header.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let bytes = found.cmsg_len - libc::CMSG_LEN(0) as usize;
                let numbers = libc::CMSG_DATA(header).cast::<RawFd>();
                let each =
                    (0..bytes / size_of::<RawFd>()).map(|nth| numbers.add(nth).read_unaligned());
                fds.extend(each.map(|number| OwnedFd::from_raw_fd(number)));
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    fds
}

/// Closes every descriptor from `first` on except `kept`.
///
/// The caller must not use an owner of a closed descriptor again.
pub(crate) fn close_from(first: RawFd, kept: RawFd) -> Result<(), Errno> {
    for (first, last) in [(first, kept - 1), (kept + 1, RawFd::MAX)] {
        if first <= last {
            // SAFETY: integer arguments only; the caller upholds the condition above.
            check(unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) })?;
        }
    }
    Ok(())
}

/// Closes all inherited descriptors except the standard streams and `kept`: they belong to the process that started
/// this one.
///
/// The caller must not own any other descriptor yet.
pub fn close_inherited(kept: BorrowedFd) -> Result<(), Errno> {
    close_from(libc::STDERR_FILENO + 1, kept.as_raw_fd())
}

/// Duplicates a descriptor to a number, replacing what is open there (dup3(2)).
///
/// The caller must not use an owner of the replaced descriptor again.
pub fn place_at(from: RawFd, number: RawFd, flags: nix::fcntl::OFlag) -> Result<(), Errno> {
    // SAFETY: integer arguments only; the caller upholds the condition above.
    Errno::result(unsafe { libc::dup3(from, number, flags.bits()) }).map(drop)
}

/// Leaves a descriptor open for the rest of the process's life, with the close-on-exec flag of `on_exec`.
pub fn keep(fd: OwnedFd, on_exec: nix::fcntl::OFlag) -> Result<(), Errno> {
    use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
    let mut flags = FdFlag::empty();
    flags.set(FdFlag::FD_CLOEXEC, on_exec.contains(OFlag::O_CLOEXEC));
    fcntl(&fd, FcntlArg::F_SETFD(flags))?;
    std::mem::forget(fd);
    Ok(())
}

/// Moves the socket that this process inherited as standard stream `number` to a new number, and opens `/dev/null` as
/// streams 0 and 1.
pub fn relocate_stdio(number: RawFd) -> Result<OwnedFd, Errno> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl, open};
    use nix::sys::stat::Mode;
    let inherited = std::mem::ManuallyDrop::new(inherited(number));
    let moved = owned(libc::c_long::from(fcntl(
        &*inherited,
        FcntlArg::F_DUPFD_CLOEXEC(3),
    )?));
    let null = open("/dev/null", OFlag::O_RDWR | OFlag::O_CLOEXEC, Mode::empty())?;
    for stream in [0, 1] {
        // SAFETY: integer arguments only. No value owns streams 0 and 1; they belong to the process itself.
        Errno::result(unsafe { libc::dup2(null.as_raw_fd(), stream) })?;
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// Returns a pipe's reader, and a socket to which `copies` copies of the pipe's writer were sent.
    fn sent(copies: usize) -> (std::io::PipeReader, UnixStream) {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        send(theirs.as_fd(), b"x", &vec![writer.as_fd(); copies]).expect("there is room");
        writer.write_all(b"y").expect("there is a reader");
        (reader, ours)
    }

    #[test]
    fn passed_descriptors_arrive() {
        let (mut reader, socket) = sent(MAX_PASSED);
        let mut buffer = [0; 8];
        let (length, fds) = receive(socket.as_fd(), &mut buffer).expect("it fits");
        assert_eq!((length, fds.len()), (1, MAX_PASSED));
        drop(fds);
        let mut text = String::new();
        // Reads to EOF, which requires that every copy of the writer is closed.
        reader.read_to_string(&mut text).expect("it is text");
        assert_eq!(text, "y");
    }

    #[test]
    fn descriptors_of_an_oversized_message_are_closed() {
        let (reader, socket) = sent(MAX_PASSED + 1);
        let refused = receive(socket.as_fd(), &mut [0; 8]).map(drop);
        assert_eq!(refused, Err(Errno::EMSGSIZE));
        let flags = nix::fcntl::OFlag::O_NONBLOCK;
        nix::fcntl::fcntl(&reader, nix::fcntl::FcntlArg::F_SETFL(flags)).expect("it is a pipe");
        let mut byte = [0; 8];
        assert_eq!(nix::unistd::read(&reader, &mut byte), Ok(1));
        // EOF, and not EAGAIN.
        assert_eq!(nix::unistd::read(&reader, &mut byte), Ok(0));
    }
}
