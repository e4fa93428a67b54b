//! Sockets: AF_UNIX within the worker. There is no network, and no call to get one.

use super::super::rule::{Errno, Rule, allow, allow_if, clear, none_of, one_of};
use sandfork_jail::uapi::{
    AF_UNIX, MSG_OOB, SO_ATTACH_BPF, SO_ATTACH_FILTER, SO_ATTACH_REUSEPORT_CBPF,
    SO_ATTACH_REUSEPORT_EBPF,
};

pub(super) const RULES: &[Rule] = &[
    // An empty network namespace does not block AF_VSOCK, which reaches the hypervisor. AF_ALG,
    // AF_NETLINK, AF_PACKET and the others contain most of the kernel's vulnerabilities.
    allow_if(
        "unix sockets (multiprocessing, asyncio), no other family",
        "socket socketpair",
        &[one_of(0, &[AF_UNIX])],
        // Not EAFNOSUPPORT, which would mean that the kernel lacks the family: this is a refusal.
        Errno::Perm,
    ),
    allow(
        "use a socket",
        "connect bind listen accept accept4 getsockname getpeername recvfrom recvmsg recvmmsg \
         shutdown getsockopt",
    ),
    // Out-of-band data on unix sockets, which almost no program uses, was a way out of Chrome's
    // sandbox (CVE-2025-38236). Without a sender there is nothing to receive.
    allow_if(
        "send, but nothing out of band",
        "sendto",
        &[clear(3, MSG_OOB)],
        Errno::NotSupported,
    ),
    allow_if(
        "send messages and descriptors, but nothing out of band",
        "sendmsg",
        &[clear(2, MSG_OOB)],
        Errno::NotSupported,
    ),
    allow_if(
        "send several messages, but nothing out of band",
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
