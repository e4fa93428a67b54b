//! Capabilities (capabilities(7)): the worker ends with none, in any set, for good.

use nix::errno::Errno;

use crate::sys;

/// Empties every set.
///
/// The bounding set first: dropping from it needs `CAP_SETPCAP`, which the last line takes away.
pub fn drop_all() -> Result<(), Errno> {
    drop_bounding()?;
    drop_own()
}

/// Empties the bounding set, while this process may.
pub fn drop_bounding() -> Result<(), Errno> {
    sys::capabilities::clear_bounding()
}

/// Empties every set that a process has for itself.
///
/// The bounding set only limits what execve(2) grants, which `no_new_privs` forbids as well.
pub fn drop_own() -> Result<(), Errno> {
    sys::capabilities::clear_ambient()?;
    sys::capabilities::clear_thread()
}
