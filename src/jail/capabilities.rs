//! Capabilities (capabilities(7)): the worker ends with none, in any set, for good.

use caps::CapSet;
use nix::errno::Errno;

/// Empties every set.
///
/// The bounding set first: dropping from it needs `CAP_SETPCAP`, which the last line takes away.
pub fn drop_all() -> Result<(), Errno> {
    drop_bounding()?;
    drop_own()
}

/// Empties the bounding set, while this process may.
pub fn drop_bounding() -> Result<(), Errno> {
    clear(CapSet::Bounding)
}

/// Empties every set that a process has for itself.
///
/// The bounding set only limits what execve(2) grants, which `no_new_privs` forbids as well.
pub fn drop_own() -> Result<(), Errno> {
    let own = [
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ];
    own.into_iter().try_for_each(clear)
}

fn clear(set: CapSet) -> Result<(), Errno> {
    caps::clear(None, set).map_err(|_| Errno::last())
}
