//! Capabilities (capabilities(7)): the worker ends with none, in any set, for good.

use nix::errno::Errno;

use crate::sys;

/// Empties the bounding and ambient sets, then the effective, permitted and inheritable ones.
///
/// The bounding set first: dropping from it needs `CAP_SETPCAP`, which the last line takes away.
pub fn drop_all() -> Result<(), Errno> {
    sys::capabilities::clear_bounding()?;
    sys::capabilities::clear_ambient()?;
    sys::capabilities::clear_thread()
}
