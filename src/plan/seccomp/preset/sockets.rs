//! Unix sockets in the worker. There is no network, and no call that could set one up.

use super::super::rule::{Errno, Rule, allow, allow_if, clear, none_of, one_of};
use sandfork_jail::uapi::{
    AF_UNIX, MSG_OOB, SO_ATTACH_BPF, SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF,
    SO_ATTACH_REUSEPORT_EBPF,
};

pub(super) const RULES: &[Rule] = &[
    // An empty network namespace does not block AF_VSOCK, which reaches the hypervisor. AF_ALG, AF_NETLINK,
    // AF_PACKET and other families have had most of the kernel's socket vulnerabilities.
    allow_if(
        "unix sockets (multiprocessing, asyncio), no other family",
        "socket socketpair",
        &[one_of(0, &[AF_UNIX])],
        // Not EAFNOSUPPORT, which would suggest that the kernel lacks the family.
        Errno::Perm,
    ),
    allow(
        "use a socket",
        "connect bind listen accept accept4 getsockname getpeername recvfrom recvmsg recvmmsg \
         shutdown getsockopt",
    ),
    // Out-of-band data on Unix sockets, which almost no program uses, has been used to escape from Chrome's
    // sandbox (CVE-2025-38236). Refusing to send it also leaves nothing to receive.
    allow_if(
        "send, but no out-of-band data",
        "sendto",
        &[clear(3, MSG_OOB)],
        Errno::NotSupported,
    ),
    allow_if(
        "send messages and descriptors, but no out-of-band data",
        "sendmsg",
        &[clear(2, MSG_OOB)],
        Errno::NotSupported,
    ),
    allow_if(
        "send several messages, but no out-of-band data",
        "sendmmsg",
        &[clear(3, MSG_OOB)],
        Errno::NotSupported,
    ),
    allow_if(
        "socket options, but no programs for the kernel to run on each message",
        "setsockopt",
        &[none_of(
            2,
            &[
                SO_ATTACH_FILTER,
                SO_ATTACH_BPF,
                SO_ATTACH_REUSEPORT_CBPF,
                SO_ATTACH_REUSEPORT_EBPF,
            ],
        )],
        Errno::Perm,
    ),
];
