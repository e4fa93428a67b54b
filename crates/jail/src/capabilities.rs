//! Capabilities (capabilities(7)): the worker permanently gives up every capability in every set.

use caps::CapSet;
use nix::errno::Errno;

/// Empties every set.
///
/// The bounding set comes first: dropping from it needs `CAP_SETPCAP`, which the last line gives
/// up.
pub fn drop_all() -> Result<(), Errno> {
    drop_bounding()?;
    drop_own()
}

/// Empties the bounding set, while this process still has the right to.
pub fn drop_bounding() -> Result<(), Errno> {
    clear(CapSet::Bounding)
}

/// Empties every set of the process except the bounding set.
///
/// The bounding set only limits what execve(2) grants, which `no_new_privs` forbids as well.
pub fn drop_own() -> Result<(), Errno> {
    clear(CapSet::Ambient)?;
    clear(CapSet::Inheritable)?;
    clear(CapSet::Effective)?;
    clear(CapSet::Permitted)
}

fn clear(set: CapSet) -> Result<(), Errno> {
    caps::clear(None, set).map_err(|_| Errno::last())
}
