//! Changes of an epoll(7) set by a descriptor's number: what withdraws a registration may not have the
//! descriptor itself at hand.

use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

use nix::errno::Errno;
use nix::sys::epoll::EpollFlags;

/// What changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// The file is watched from now on.
    Add,
    /// It is watched for other events.
    Modify,
    /// It is no longer watched.
    Remove,
}

/// Changes which events the set reports of the file that has this number. They carry the number as their
/// data.
pub fn change(
    set: BorrowedFd,
    change: Change,
    number: RawFd,
    events: EpollFlags,
) -> Result<(), Errno> {
    let operation = match change {
        Change::Add => libc::EPOLL_CTL_ADD,
        Change::Modify => libc::EPOLL_CTL_MOD,
        Change::Remove => libc::EPOLL_CTL_DEL,
    };
    let mut event = libc::epoll_event {
        events: events.bits().cast_unsigned(),
        u64: u64::from(number.unsigned_abs()),
    };
    // SAFETY: integers, and an event that lives until the call returns.
    Errno::result(unsafe { libc::epoll_ctl(set.as_raw_fd(), operation, number, &raw mut event) })
        .map(drop)
}
