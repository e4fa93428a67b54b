//! Loads compiled filters (seccomp(2)) and answers their notifications (seccomp_unotify(2)).

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use super::check;
use super::descriptors::owned;

/// Loads a filter into this thread. Threads and processes that this thread creates later inherit it.
///
/// Requires `no_new_privs`, or `CAP_SYS_ADMIN` in the thread's user namespace.
pub fn load(program: &[(u16, u8, u8, u32)]) -> Result<(), Errno> {
    load_with(program, 0).map(drop)
}

/// Loads a filter and returns its listener, on which the filter's notifications are received and answered. `EBUSY` if
/// another filter of the thread already has a listener.
pub fn load_with_listener(program: &[(u16, u8, u8, u32)]) -> Result<OwnedFd, Errno> {
    match load_with(program, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER) {
        // The standard streams are open, so the kernel never returns their numbers.
        Ok(number) if number <= libc::c_long::from(libc::STDERR_FILENO) => Err(Errno::EBADF),
        Ok(number) => Ok(owned(number)),
        Err(errno) => Err(errno),
    }
}

fn load_with(program: &[(u16, u8, u8, u32)], flags: libc::c_ulong) -> Result<libc::c_long, Errno> {
    let mut instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let header = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| Errno::E2BIG)?,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: `header` points to `len` live instructions, which the kernel copies and validates.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            flags,
            &raw const header,
        )
    })
}

/// A notification: a system call that waits for a reply.
#[derive(Clone, Copy, Debug)]
pub struct Notification {
    /// The identifier of the notification, needed to reply.
    pub id: u64,
    /// The calling thread, in this process's pid namespace; 0 if it is not visible there.
    pub thread: u32,
    /// The arguments of the call. Memory behind a pointer, and the file behind a descriptor number, may change
    /// meanwhile.
    pub arguments: [u64; 6],
    /// The number of the system call.
    pub call: libc::c_int,
}

/// `SECCOMP_USER_NOTIF_FLAG_CONTINUE`. libc's constant does not have the type of the field.
const CONTINUE: u32 = 1;

/// The reply to a notification.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reply {
    /// The kernel executes the call.
    Continue,
    /// The call returns this error.
    Error(Errno),
    /// The call returns this value.
    Value(i64),
}

/// Receives the next notification of a listener that poll(2) reports as readable. Returns `None` if the calling thread
/// is gone.
pub fn receive(listener: BorrowedFd) -> Result<Option<Notification>, Errno> {
    // SAFETY: a structure of integers, for which zeros are valid. The kernel requires it to be zeroed.
    let mut notification: libc::seccomp_notif = unsafe { std::mem::zeroed() };
    // SAFETY: `notification` is live, and of the type that the request expects.
    let received = Errno::result(unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_RECV,
            &raw mut notification,
        )
    });
    match received {
        Ok(_) => Ok(Some(Notification {
            id: notification.id,
            thread: notification.pid,
            arguments: notification.data.args,
            call: notification.data.nr,
        })),
        Err(Errno::ENOENT | Errno::EINTR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Returns whether the notification is still valid: the call waits, so the pid of its thread was not reused.
pub fn is_valid(listener: BorrowedFd, id: u64) -> bool {
    // SAFETY: `id` is live, and of the type that the request expects.
    let valid = unsafe {
        libc::ioctl(
            listener.as_raw_fd(),
            libc::SECCOMP_IOCTL_NOTIF_ID_VALID,
            &raw const id,
        )
    };
    valid == 0
}

/// Replies to a notification. Succeeds if the calling thread is gone.
///
/// A signal may interrupt the ioctl while it waits for the filter's lock. The call would then wait for its reply as
/// long as the guest lives, so a failed attempt is retried twice.
pub fn respond(listener: BorrowedFd, id: u64, reply: Reply) -> Result<(), Errno> {
    let (val, error, flags) = match reply {
        Reply::Continue => (0, 0, CONTINUE),
        Reply::Error(errno) => (0, -(errno as i32), 0),
        Reply::Value(value) => (value, 0, 0),
    };
    let reply = libc::seccomp_notif_resp {
        id,
        val,
        error,
        flags,
    };
    let attempt = || {
        // SAFETY: `reply` is live, and of the type that the request expects.
        let result = Errno::result(unsafe {
            libc::ioctl(
                listener.as_raw_fd(),
                libc::SECCOMP_IOCTL_NOTIF_SEND,
                &raw const reply,
            )
        });
        match result {
            Ok(_) | Err(Errno::ENOENT) => Ok(()),
            Err(errno) => Err(errno),
        }
    };
    attempt().or_else(|_| attempt()).or_else(|_| attempt())
}
