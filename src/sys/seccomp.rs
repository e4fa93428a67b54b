//! Loading a compiled filter (seccomp(2)).

use nix::errno::Errno;

use super::check;

/// Loads a filter into this thread; it holds for every thread and process that it makes.
///
/// Needs `no_new_privs`, or `CAP_SYS_ADMIN` in the thread's user namespace.
pub fn load(program: &[(u16, u8, u8, u32)]) -> Result<(), Errno> {
    let mut instructions: Vec<libc::sock_filter> = program
        .iter()
        .map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k })
        .collect();
    let header = libc::sock_fprog {
        len: u16::try_from(instructions.len()).map_err(|_| Errno::E2BIG)?,
        filter: instructions.as_mut_ptr(),
    };
    // SAFETY: `header` points at `len` live instructions; the kernel copies and checks them.
    check(unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            0,
            &raw const header,
        )
    })?;
    Ok(())
}
