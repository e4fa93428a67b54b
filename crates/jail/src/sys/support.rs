//! Queries kernel features without side effects.

use nix::errno::Errno;

/// Returns the Landlock ABI version (landlock_create_ruleset(2), `LANDLOCK_CREATE_RULESET_VERSION`).
pub fn landlock_abi() -> Result<u32, Errno> {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    // SAFETY: with this flag the kernel expects a null attribute of size zero, and writes nothing.
    let abi = Errno::result(unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            LANDLOCK_CREATE_RULESET_VERSION,
        )
    })?;
    u32::try_from(abi).map_err(|_| Errno::EINVAL)
}

/// Checks that seccomp filters exist and can kill a process (seccomp(2), `SECCOMP_GET_ACTION_AVAIL`).
pub fn seccomp_filters() -> Result<(), Errno> {
    let action: u32 = libc::SECCOMP_RET_KILL_PROCESS;
    // SAFETY: `action` is a live `u32` that the kernel only reads.
    Errno::result(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_GET_ACTION_AVAIL,
            0,
            &raw const action,
        )
    })
    .map(drop)
}
