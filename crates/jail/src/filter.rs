//! Filters for a worker that no supervisor can listen to. The kernel allows one listener for all filters of a process,
//! and a container manager may already have it.

use super::program::BpfProgram;

/// The opcode of an instruction that returns a constant: `BPF_RET | BPF_K` of linux/bpf_common.h.
pub const RETURN: u16 = 0x06;

/// The verdict that notifies the supervisor about a call, which is allowed if no supervisor can listen
/// ([`without_listener`]): `SECCOMP_RET_USER_NOTIF` with data bits that the kernel ignores.
pub const ASK_OR_ALLOW: u32 = 0x7fc0_0001;

/// The verdict that notifies the supervisor about a call that is refused with `EPERM` in any case, so that the
/// supervisor can report it.
///
/// `SECCOMP_RET_ERRNO` of one filter takes precedence over `SECCOMP_RET_USER_NOTIF` of another, and of several filters
/// that return the latter the kernel notifies the one loaded last. The zygote's filter therefore returns the same
/// verdict as the worker's. No supervisor listens to the zygote's filter, so the kernel answers the zygote itself with
/// `ENOSYS`.
pub const ASK_OR_REFUSE: u32 = 0x7fc0_0002;

/// Returns a filter with its notifying verdicts replaced, for a worker that no supervisor can listen to.
pub fn without_listener(filter: &BpfProgram) -> BpfProgram {
    // linux/seccomp.h, linux/errno.h
    const ALLOW: u32 = 0x7fff_0000;
    const EPERM: u32 = 0x0005_0001;
    let answer = |k| match k {
        ASK_OR_ALLOW => ALLOW,
        ASK_OR_REFUSE => EPERM,
        k => k,
    };
    let instructions = filter.iter();
    instructions
        .map(|&(code, jt, jf, k)| match code {
            RETURN => (code, jt, jf, answer(k)),
            _ => (code, jt, jf, k),
        })
        .collect()
}
