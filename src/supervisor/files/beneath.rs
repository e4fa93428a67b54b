//! Resolves paths to descriptors. All file operations go through this module.

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, open, openat2};
use nix::sys::stat::{Mode, SFlag, fstat};

use super::list::EntryKind;

/// How often a path is resolved again because it changed meanwhile (openat2(2), `EAGAIN`), or because the guest
/// replaced an entry.
pub const ATTEMPTS: usize = 32;

/// Follows no link of any kind, does not leave the directory, and does not cross into a mount.
const RESOLVE: ResolveFlag = ResolveFlag::RESOLVE_BENEATH
    .union(ResolveFlag::RESOLVE_NO_SYMLINKS)
    .union(ResolveFlag::RESOLVE_NO_MAGICLINKS)
    .union(ResolveFlag::RESOLVE_NO_XDEV);

/// A descriptor that does not open the file itself: opening a FIFO or a device has no side effect.
pub const HANDLE: OFlag = OFlag::O_PATH;
/// The same for a directory.
pub const DIRECTORY: OFlag = OFlag::O_PATH.union(OFlag::O_DIRECTORY);

/// Opens the entry at `path`, relative to `directory`.
pub fn open_beneath(directory: impl AsFd, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
    resolve(directory, path, flags, Mode::empty())
}

/// Creates a regular file at `path`, where no entry may exist.
pub fn create_beneath(
    directory: impl AsFd,
    path: &CStr,
    flags: OFlag,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    resolve(
        directory,
        path,
        flags | OFlag::O_CREAT | OFlag::O_EXCL,
        mode,
    )
}

fn resolve(directory: impl AsFd, path: &CStr, flags: OFlag, mode: Mode) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .mode(mode)
        .resolve(RESOLVE);
    let mut attempt = 0;
    loop {
        attempt += 1;
        match openat2(directory.as_fd(), path, how) {
            Err(Errno::EAGAIN) if attempt < ATTEMPTS => {}
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Returns the kind of the entry behind a descriptor.
pub fn kind_of(handle: &OwnedFd) -> Result<EntryKind, Errno> {
    Ok(kind(SFlag::from_bits_truncate(fstat(handle)?.st_mode)))
}

/// Returns the kind of entry in a `st_mode`.
pub fn kind(mode: SFlag) -> EntryKind {
    match mode & SFlag::S_IFMT {
        SFlag::S_IFREG => EntryKind::File,
        SFlag::S_IFDIR => EntryKind::Directory,
        SFlag::S_IFLNK => EntryKind::Symlink,
        _ => EntryKind::Other,
    }
}

/// Opens the file that a descriptor refers to. Uses `O_NONBLOCK`, because a guest that holds a lease on the file could
/// block the open (fcntl(2), `F_SETLEASE`).
pub fn reopen(handle: impl AsFd, flags: OFlag) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    let flags = flags | OFlag::O_NONBLOCK | OFlag::O_NOCTTY | OFlag::O_CLOEXEC;
    open(path.as_str(), flags, Mode::empty())
}
