//! Capabilities (capabilities(7)): the worker ends with none, in any set, for good.

use caps::CapSet;
use nix::errno::Errno;

/// Empties the bounding and ambient sets, then the inheritable, permitted and effective ones.
///
/// The bounding set first: dropping from it needs `CAP_SETPCAP`, which the last line takes away.
pub fn drop_all() -> Result<(), Errno> {
    for set in [
        CapSet::Bounding,
        CapSet::Ambient,
        CapSet::Inheritable,
        CapSet::Effective,
        CapSet::Permitted,
    ] {
        caps::clear(None, set).map_err(|_| Errno::last())?;
    }
    Ok(())
}
