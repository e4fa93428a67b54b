//! Capabilities (capabilities(7)): the worker ends with none, in any set, for good.

use caps::{CapSet, Capability};
use nix::errno::Errno;

/// Empties the bounding set, where the caller has the right to: a user namespace gives it, and so
/// does being root. Elsewhere `no_new_privs` alone keeps the set from mattering.
pub fn empty_bounding_set() -> Result<(), Errno> {
    let may = caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP);
    if may.map_err(|_| Errno::last())? {
        caps::clear(None, CapSet::Bounding).map_err(|_| Errno::last())?;
    }
    Ok(())
}

/// Empties the bounding and ambient sets, then the inheritable, permitted and effective ones.
///
/// The bounding set first: dropping from it needs `CAP_SETPCAP`, which the last line takes away.
pub fn drop_all() -> Result<(), Errno> {
    empty_bounding_set()?;
    for set in [
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        caps::clear(None, set).map_err(|_| Errno::last())?;
    }
    Ok(())
}
