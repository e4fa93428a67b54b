//! Taking capabilities away from this thread (capabilities(7)).

use nix::errno::Errno;

use super::check;

/// Sets have room for so many; a kernel knows fewer.
const MOST: libc::c_ulong = 64;

/// Drops every capability that the kernel knows from the bounding set. Needs `CAP_SETPCAP`.
pub fn clear_bounding() -> Result<(), Errno> {
    for capability in 0..MOST {
        // SAFETY: integers only.
        let dropped = unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) };
        match Errno::result(dropped) {
            // The first number behind the last capability (cap_valid() in linux/capability.h).
            Err(Errno::EINVAL) if capability > 0 => return Ok(()),
            other => other?,
        };
    }
    Ok(())
}

/// Empties the ambient set.
pub fn clear_ambient() -> Result<(), Errno> {
    let clear = libc::PR_CAP_AMBIENT_CLEAR_ALL;
    // SAFETY: integers only.
    let cleared = unsafe { libc::prctl(libc::PR_CAP_AMBIENT, clear, 0, 0, 0) };
    check(libc::c_long::from(cleared))?;
    Ok(())
}

/// Empties the effective, permitted and inheritable sets (capset(2)).
pub fn clear_thread() -> Result<(), Errno> {
    /// `struct __user_cap_header_struct` of linux/capability.h.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: libc::c_int,
    }
    /// `_LINUX_CAPABILITY_VERSION_3`: two words for each set.
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header {
        version: VERSION_3,
        pid: 0,
    };
    // Low and high words of the three sets, `struct __user_cap_data_struct[2]`.
    let none = [0_u32; 6];
    // SAFETY: both point at live locals of the layout that version 3 has; the kernel only reads
    // them.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) })?;
    Ok(())
}
