//! Drops capabilities (capabilities(7)): the worker permanently gives up every capability in every set.

use caps::CapSet;
use nix::errno::Errno;

use crate::sys::process;

/// Empties every capability set.
///
/// The bounding set comes first: dropping from it needs `CAP_SETPCAP`, which the second step gives up.
pub fn drop_all() -> Result<(), Errno> {
    drop_bounding()?;
    drop_own()
}

/// Empties the bounding set, while this process still has `CAP_SETPCAP`. Iterates over the capabilities that the kernel
/// knows, not those that a library knows. Capability sets have 64 bits.
pub fn drop_bounding() -> Result<(), Errno> {
    for capability in 0..u64::BITS.into() {
        match process::drop_from_bounding_set(capability) {
            // Beyond the kernel's last capability.
            Err(Errno::EINVAL) => break,
            dropped => dropped?,
        }
    }
    Ok(())
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
