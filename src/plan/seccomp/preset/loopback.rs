//! TCP and UDP in the worker's own network namespace. These rules replace those of the preset.

use super::super::rule::{
    Errno, Rule, allow_if, allow_or_ignore_if, clear, masked_one_of, none_of, one_of, when,
};
use sandfork_jail::uapi::{
    AF_INET, AF_INET6, AF_UNIX, IP_BIND_ADDRESS_NO_PORT, IP_MTU_DISCOVER, IP_MULTICAST_LOOP,
    IP_MULTICAST_TTL, IP_PKTINFO, IP_RECVERR, IP_RECVTOS, IP_RECVTTL, IP_TOS, IP_TTL, IPPROTO_IP,
    IPPROTO_IPV6, IPPROTO_TCP, IPPROTO_UDP, IPV6_MTU_DISCOVER, IPV6_MULTICAST_HOPS,
    IPV6_MULTICAST_LOOP, IPV6_RECVERR, IPV6_RECVHOPLIMIT, IPV6_RECVPKTINFO, IPV6_RECVTCLASS,
    IPV6_TCLASS, IPV6_UNICAST_HOPS, IPV6_V6ONLY, MSG_FASTOPEN, MSG_OOB, MSG_ZEROCOPY, SO_BROADCAST,
    SO_DONTROUTE, SO_KEEPALIVE, SO_LINGER, SO_OOBINLINE, SO_PASSCRED, SO_RCVBUF, SO_RCVLOWAT,
    SO_RCVTIMEO, SO_REUSEADDR, SO_REUSEPORT, SO_SNDBUF, SO_SNDTIMEO, SOCK_DGRAM, SOCK_STREAM,
    SOCK_TYPE_MASK, SOL_SOCKET, TCP_CORK, TCP_DEFER_ACCEPT, TCP_KEEPCNT, TCP_KEEPIDLE,
    TCP_KEEPINTVL, TCP_LINGER2, TCP_MAXSEG, TCP_NODELAY, TCP_NOTSENT_LOWAT, TCP_QUICKACK,
    TCP_SYNCNT, TCP_USER_TIMEOUT, TCP_WINDOW_CLAMP, TCP_ZEROCOPY_RECEIVE,
};

/// The refused flags of sends: out-of-band data, as without a network, and two alternative code paths that few
/// programs use.
const REFUSED_FLAGS: u32 = MSG_OOB | MSG_FASTOPEN | MSG_ZEROCOPY;

pub(super) const RULES: &[Rule] = &[
    // These families also include ICMP, SCTP, MPTCP and UDP-Lite, for some of which the kernel loads a module.
    allow_if(
        "unix sockets, tcp and udp, no other family or protocol",
        "socket",
        &[
            one_of(0, &[AF_UNIX, AF_INET, AF_INET6]),
            when(
                0,
                &[AF_INET, AF_INET6],
                &masked_one_of(1, SOCK_TYPE_MASK, &[SOCK_STREAM, SOCK_DGRAM]),
            ),
            when(
                0,
                &[AF_INET, AF_INET6],
                &one_of(2, &[0, IPPROTO_TCP, IPPROTO_UDP]),
            ),
        ],
        // Libraries that list interfaces by netlink continue without them after this error (ZeroMQ, and with it
        // Jupyter kernels).
        Errno::NotSupported,
    ),
    allow_if(
        "pairs of unix sockets, the only family that supports pairs",
        "socketpair",
        &[one_of(0, &[AF_UNIX])],
        Errno::Perm,
    ),
    allow_if(
        "send, but no out-of-band data, fast open or zero-copy",
        "sendto",
        &[clear(3, REFUSED_FLAGS)],
        Errno::NotSupported,
    ),
    allow_if(
        "send messages and descriptors, but no out-of-band data, fast open or zero-copy",
        "sendmsg",
        &[clear(2, REFUSED_FLAGS)],
        Errno::NotSupported,
    ),
    allow_if(
        "send several messages, but no out-of-band data, fast open or zero-copy",
        "sendmmsg",
        &[clear(3, REFUSED_FLAGS)],
        Errno::NotSupported,
    ),
    // TCP_ZEROCOPY_RECEIVE maps the kernel's pages into the guest.
    allow_if(
        "read socket options, but no received data by TCP_ZEROCOPY_RECEIVE",
        "getsockopt",
        &[when(
            1,
            &[IPPROTO_TCP],
            &none_of(2, &[TCP_ZEROCOPY_RECEIVE]),
        )],
        Errno::Perm,
    ),
    // An allow-list: other options choose devices and routes, load modules and programs, make the kernel encrypt or
    // decapsulate, repair connections or join groups. Larger buffers would be charged to no one
    // (`supervisor/sockets.rs`), and servers that request them work without. SO_LINGER makes close(2) wait for
    // unsent data, and the supervisor closes descriptors that guests pass to it.
    allow_or_ignore_if(
        "socket options for timing and addresses; SO_LINGER and buffer sizes have no effect",
        "setsockopt",
        &[
            one_of(1, &[SOL_SOCKET]),
            one_of(2, &[SO_SNDBUF, SO_RCVBUF, SO_LINGER]),
        ],
        &[
            one_of(1, &[SOL_SOCKET, IPPROTO_IP, IPPROTO_TCP, IPPROTO_IPV6]),
            when(
                1,
                &[SOL_SOCKET],
                &one_of(
                    2,
                    &[
                        SO_REUSEADDR,
                        SO_DONTROUTE,
                        SO_BROADCAST,
                        SO_KEEPALIVE,
                        SO_OOBINLINE,
                        SO_REUSEPORT,
                        SO_PASSCRED,
                        SO_RCVLOWAT,
                        SO_RCVTIMEO,
                        SO_SNDTIMEO,
                    ],
                ),
            ),
            when(
                1,
                &[IPPROTO_IP],
                &one_of(
                    2,
                    &[
                        IP_TOS,
                        IP_TTL,
                        IP_PKTINFO,
                        IP_MTU_DISCOVER,
                        IP_RECVERR,
                        IP_RECVTTL,
                        IP_RECVTOS,
                        IP_BIND_ADDRESS_NO_PORT,
                        IP_MULTICAST_TTL,
                        IP_MULTICAST_LOOP,
                    ],
                ),
            ),
            when(
                1,
                &[IPPROTO_TCP],
                &one_of(
                    2,
                    &[
                        TCP_NODELAY,
                        TCP_MAXSEG,
                        TCP_CORK,
                        TCP_KEEPIDLE,
                        TCP_KEEPINTVL,
                        TCP_KEEPCNT,
                        TCP_SYNCNT,
                        TCP_LINGER2,
                        TCP_DEFER_ACCEPT,
                        TCP_WINDOW_CLAMP,
                        TCP_QUICKACK,
                        TCP_USER_TIMEOUT,
                        TCP_NOTSENT_LOWAT,
                    ],
                ),
            ),
            when(
                1,
                &[IPPROTO_IPV6],
                &one_of(
                    2,
                    &[
                        IPV6_UNICAST_HOPS,
                        IPV6_MULTICAST_HOPS,
                        IPV6_MULTICAST_LOOP,
                        IPV6_MTU_DISCOVER,
                        IPV6_RECVERR,
                        IPV6_V6ONLY,
                        IPV6_RECVPKTINFO,
                        IPV6_RECVHOPLIMIT,
                        IPV6_RECVTCLASS,
                        IPV6_TCLASS,
                    ],
                ),
            ),
        ],
        Errno::Perm,
    ),
];
