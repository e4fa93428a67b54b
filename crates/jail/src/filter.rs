//! Filters that ask the supervisor, for a worker that it cannot listen to: the kernel has one listener at most for the
//! filters of a process, and a container manager may be it.

use super::program::BpfProgram;

/// The code of an instruction that ends a filter with a constant: `BPF_RET | BPF_K` of linux/bpf_common.h.
pub const RETURN: u16 = 0x06;

/// The value by which a filter asks the supervisor about a call that is allowed if it cannot be asked:
/// `SECCOMP_RET_USER_NOTIF` with data that the kernel ignores.
pub const ASK_OR_ALLOW: u32 = 0x7fc0_0001;

/// The value by which a filter asks the supervisor about a call that is refused with `EPERM` in any case, so that the
/// supervisor can report it.
///
/// The kernel takes `SECCOMP_RET_ERRNO` of one filter before `SECCOMP_RET_USER_NOTIF` of another, and the filter that
/// was loaded last of several with the latter. So the zygote's filter asks as the worker's does. No supervisor listens
/// to the zygote's filter, and the kernel answers the zygote itself with `ENOSYS`.
pub const ASK_OR_REFUSE: u32 = 0x7fc0_0002;

/// A filter for a worker that no supervisor can listen to.
pub fn unheard(filter: &BpfProgram) -> BpfProgram {
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
