//! Wraps the mount calls of Linux 5.2 and 5.12 that nix lacks. They hold mounts by descriptor, so no path is looked up
//! twice (open_tree(2), move_mount(2), mount_setattr(2), fsopen(2)).

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};

use super::check;
use super::descriptors::owned;

pub(super) const OPEN_TREE_CLONE: libc::c_uint = 1;
pub(super) const OPEN_TREE_CLOEXEC: libc::c_uint = libc::O_CLOEXEC as libc::c_uint;
pub(super) const MOVE_MOUNT_F_EMPTY_PATH: libc::c_uint = 0x4;
pub(super) const FSOPEN_CLOEXEC: libc::c_uint = 1;
pub(super) const FSCONFIG_CMD_CREATE: libc::c_uint = 6;
pub(super) const FSMOUNT_CLOEXEC: libc::c_uint = 1;

/// A mount attribute of mount_setattr(2): the mount is read-only.
pub const MOUNT_ATTR_RDONLY: u64 = 0x1;
/// Set-user-ID bits are not honoured.
pub const MOUNT_ATTR_NOSUID: u64 = 0x2;
/// Device nodes are not honoured.
pub const MOUNT_ATTR_NODEV: u64 = 0x4;
/// Programs cannot be executed.
pub const MOUNT_ATTR_NOEXEC: u64 = 0x8;
/// Owners are mapped by a user namespace.
const MOUNT_ATTR_IDMAP: u64 = 0x10_0000;

/// `struct mount_attr` of `linux/mount.h`.
#[repr(C)]
pub(super) struct MountAttr {
    attr_set: u64,
    attr_clr: u64,
    propagation: u64,
    userns_fd: u64,
}

impl MountAttr {
    /// Returns a request that sets these attributes and clears none.
    pub(super) const fn adding(set: u64) -> Self {
        Self {
            attr_set: set,
            attr_clr: 0,
            propagation: 0,
            userns_fd: 0,
        }
    }
}

fn c_path(path: &Path) -> Result<CString, Errno> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::EINVAL)
}

/// Returns a detached copy of the mount at `path` and all mounts beneath it (open_tree(2) with `OPEN_TREE_CLONE`). A
/// host directory that contains many mounts therefore looks the same inside.
pub fn clone_tree(path: &Path) -> Result<OwnedFd, Errno> {
    open_tree(libc::AT_FDCWD, &c_path(path)?)
}

/// Like [`clone_tree`], but rejects a path with a symbolic link in any component: `ELOOP` (openat2(2)).
pub fn clone_tree_without_links(path: &Path) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS);
    let handle = openat2(AT_FDCWD, path, how)?;
    open_tree(handle.as_raw_fd(), c"")
}

/// Returns a detached copy of the mount at a path relative to a directory. An empty path denotes the descriptor itself.
fn open_tree(directory: RawFd, path: &CStr) -> Result<OwnedFd, Errno> {
    // SAFETY: `path` is NUL-terminated and outlives the call, and both callers hold the descriptor for its duration.
    // The kernel writes nothing.
    let fd = check(unsafe {
        libc::syscall(
            libc::SYS_open_tree,
            directory,
            path.as_ptr(),
            OPEN_TREE_CLONE
                | OPEN_TREE_CLOEXEC
                | (libc::AT_RECURSIVE | libc::AT_EMPTY_PATH) as libc::c_uint,
        )
    })?;
    Ok(owned(fd))
}

/// Sets attributes of a detached tree and every mount in it.
pub fn set_attributes(tree: impl AsFd, set: u64) -> Result<(), Errno> {
    set_attr(tree, &MountAttr::adding(set))
}

/// Id-maps a detached tree, and every mount in it, by the id maps of a user namespace.
pub fn map_owners(tree: impl AsFd, user_namespace: impl AsFd) -> Result<(), Errno> {
    let namespace = user_namespace.as_fd().as_raw_fd();
    let attr = MountAttr {
        userns_fd: u64::try_from(namespace).map_err(|_| Errno::EBADF)?,
        ..MountAttr::adding(MOUNT_ATTR_IDMAP)
    };
    set_attr(tree, &attr)
}

fn set_attr(tree: impl AsFd, attr: &MountAttr) -> Result<(), Errno> {
    // SAFETY: the empty path with AT_EMPTY_PATH denotes the descriptor, which is borrowed for the call. `attr` is a
    // live `struct mount_attr`, and its true size is passed.
    check(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH | libc::AT_RECURSIVE,
            std::ptr::from_ref(attr),
            size_of::<MountAttr>(),
        )
    })?;
    Ok(())
}

/// Attaches a detached tree at `target`. A tree that is attached elsewhere in this mount namespace is moved, because
/// the descriptor refers to its root.
pub fn attach(tree: impl AsFd, target: &Path) -> Result<(), Errno> {
    let target = c_path(target)?;
    // SAFETY: both paths are NUL-terminated strings that outlive the call, and the descriptor is borrowed for it.
    check(unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_FDCWD,
            target.as_ptr(),
            MOVE_MOUNT_F_EMPTY_PATH,
        )
    })?;
    Ok(())
}

/// Creates a file system instance that is mounted nowhere and reachable only by its descriptor.
pub fn detached_filesystem(kind: &CStr, attributes: u64) -> Result<OwnedFd, Errno> {
    // SAFETY: `kind` is NUL-terminated and outlives the call.
    let context = owned(check(unsafe {
        libc::syscall(libc::SYS_fsopen, kind.as_ptr(), FSOPEN_CLOEXEC)
    })?);
    // SAFETY: FSCONFIG_CMD_CREATE takes no key, no value and no auxiliary argument.
    check(unsafe {
        libc::syscall(
            libc::SYS_fsconfig,
            context.as_raw_fd(),
            FSCONFIG_CMD_CREATE,
            std::ptr::null::<libc::c_char>(),
            std::ptr::null::<libc::c_void>(),
            0,
        )
    })?;
    // SAFETY: integer arguments only.
    let mount = check(unsafe {
        libc::syscall(
            libc::SYS_fsmount,
            context.as_raw_fd(),
            FSMOUNT_CLOEXEC,
            attributes,
        )
    })?;
    Ok(owned(mount))
}
