//! File descriptors: taking ownership of what the kernel hands over, passing them between
//! processes (unix(7), `SCM_RIGHTS`).

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};

/// The most descriptors that one message carries: a spawn request with its cgroup files.
pub const MAX_PASSED: usize = 16;

/// Takes ownership of a descriptor that a system call just returned.
pub(crate) fn owned(fd: libc::c_long) -> OwnedFd {
    // SAFETY: every caller passes the non-negative result of a call that creates a descriptor,
    // straight from `check`, so that nothing else can own it. Descriptors fit in an int.
    #[allow(clippy::cast_possible_truncation)]
    unsafe {
        OwnedFd::from_raw_fd(fd as RawFd)
    }
}

/// Takes over a descriptor that this process inherited by number.
///
/// # Panics
/// When the number is negative.
pub fn inherited(fd: RawFd) -> OwnedFd {
    assert!(fd >= 0, "an inherited descriptor has a number");
    // SAFETY: the callers are the zygote's first statement and the worker's, which name the
    // numbers that their parent arranged; each number is taken once.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Sends one message with descriptors.
pub fn send(socket: BorrowedFd, bytes: &[u8], fds: &[BorrowedFd]) -> Result<(), Errno> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage] = if raw.is_empty() { &[] } else { &rights };
    loop {
        let sent = sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(bytes)],
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        );
        match sent {
            Err(Errno::EINTR) => {}
            Ok(n) if n < bytes.len() => return Err(Errno::EMSGSIZE),
            other => return other.map(drop),
        }
    }
}

/// Sends as much as the socket takes now, with descriptors beside its first byte; how much that was.
///
/// `EAGAIN` when it takes nothing: the descriptors were not sent either.
pub fn send_some(socket: BorrowedFd, bytes: &[u8], fds: &[BorrowedFd]) -> Result<usize, Errno> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let rights = [ControlMessage::ScmRights(&raw)];
    let control: &[ControlMessage] = if raw.is_empty() { &[] } else { &rights };
    let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
    loop {
        match sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(bytes)],
            control,
            flags,
            None,
        ) {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Receives one message into `buffer`: its length, 0 at the end, and the descriptors with it.
///
/// Descriptors arrive close-on-exec. A message or a descriptor list that did not fit is
/// `EMSGSIZE`; the descriptors that did arrive are closed then.
pub fn receive(socket: BorrowedFd, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut space = nix::cmsg_space!([RawFd; MAX_PASSED]);
    let mut slices = [IoSliceMut::new(buffer)];
    let message = loop {
        match recvmsg::<()>(
            socket.as_raw_fd(),
            &mut slices,
            Some(&mut space),
            MsgFlags::MSG_CMSG_CLOEXEC,
        ) {
            Err(Errno::EINTR) => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(received) = control {
            // SAFETY: the kernel has just installed these descriptors in this process for this
            // message; nothing else knows their numbers.
            fds.extend(
                received
                    .into_iter()
                    .map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }),
            );
        }
    }
    if message
        .flags
        .intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC)
    {
        return Err(Errno::EMSGSIZE);
    }
    Ok((message.bytes, fds))
}

/// Moves the socket that this process was started with as its standard stream `number` to a
/// number of its own, and puts `/dev/null` at streams 0 and 1.
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
        // SAFETY: integers only. Streams 0 and 1 are owned by nobody but the process itself.
        Errno::result(unsafe { libc::dup2(null.as_raw_fd(), stream) })?;
    }
    Ok(moved)
}
