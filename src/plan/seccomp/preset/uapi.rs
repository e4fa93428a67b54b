//! The kernel's constants for comparisons in rules (include/uapi/linux). The tests compare them
//! with `libc`, which plans do not import.

// sched.h. CLONE_NEWTIME is not among them: clone(2) reads that bit as part of the exit signal.
pub(in super::super) const CLONE_PARENT: u32 = 0x0000_8000;
pub(in super::super) const CLONE_NEWNS: u32 = 0x0002_0000;
pub(in super::super) const CLONE_NEWCGROUP: u32 = 0x0200_0000;
pub(in super::super) const CLONE_NEWUTS: u32 = 0x0400_0000;
pub(in super::super) const CLONE_NEWIPC: u32 = 0x0800_0000;
pub(in super::super) const CLONE_NEWUSER: u32 = 0x1000_0000;
pub(in super::super) const CLONE_NEWPID: u32 = 0x2000_0000;
pub(in super::super) const CLONE_NEWNET: u32 = 0x4000_0000;

// mman.h, memfd.h
pub(in super::super) const MAP_HUGETLB: u32 = 0x0004_0000;
pub(in super::super) const PROT_EXEC: u32 = 0x4;
pub(in super::super) const MADV_MERGEABLE: u32 = 12;
pub(in super::super) const MFD_CLOEXEC: u32 = 0x1;
pub(in super::super) const MFD_ALLOW_SEALING: u32 = 0x2;
pub(in super::super) const MFD_NOEXEC_SEAL: u32 = 0x8;

// fcntl.h
pub(in super::super) const O_ACCMODE: u32 = 0o3;
pub(in super::super) const O_TRUNC: u32 = 0o1000;
pub(in super::super) const F_GETFD: u32 = 1;
pub(in super::super) const F_SETFD: u32 = 2;
pub(in super::super) const F_GETFL: u32 = 3;
pub(in super::super) const F_SETFL: u32 = 4;
pub(in super::super) const F_GETLK: u32 = 5;
pub(in super::super) const F_SETLK: u32 = 6;
pub(in super::super) const F_SETLKW: u32 = 7;
pub(in super::super) const F_OFD_GETLK: u32 = 36;
pub(in super::super) const F_OFD_SETLK: u32 = 37;
pub(in super::super) const F_OFD_SETLKW: u32 = 38;
pub(in super::super) const F_SETOWN: u32 = 8;
pub(in super::super) const F_SETSIG: u32 = 10;
pub(in super::super) const F_SETOWN_EX: u32 = 15;
pub(in super::super) const F_SETLEASE: u32 = 1024;
pub(in super::super) const F_NOTIFY: u32 = 1026;
pub(in super::super) const F_DUPFD_CLOEXEC: u32 = 1030;
pub(in super::super) const F_SETPIPE_SZ: u32 = 1031;
pub(in super::super) const F_GETPIPE_SZ: u32 = 1032;

// fadvise.h
pub(in super::super) const POSIX_FADV_DONTNEED: u32 = 4;

// ioctls.h, fs.h
pub(in super::super) const TCGETS: u32 = 0x5401;
pub(in super::super) const TCSETS: u32 = 0x5402;
pub(in super::super) const TCSETSW: u32 = 0x5403;
pub(in super::super) const TCSETSF: u32 = 0x5404;
pub(in super::super) const TCSBRK: u32 = 0x5409;
pub(in super::super) const TCXONC: u32 = 0x540a;
pub(in super::super) const TCFLSH: u32 = 0x540b;
pub(in super::super) const TIOCSCTTY: u32 = 0x540e;
pub(in super::super) const TIOCGPGRP: u32 = 0x540f;
pub(in super::super) const TIOCSPGRP: u32 = 0x5410;
pub(in super::super) const TIOCOUTQ: u32 = 0x5411;
pub(in super::super) const TIOCGWINSZ: u32 = 0x5413;
pub(in super::super) const TIOCSWINSZ: u32 = 0x5414;
pub(in super::super) const TIOCNOTTY: u32 = 0x5422;
pub(in super::super) const TCSBRKP: u32 = 0x5425;
pub(in super::super) const TIOCGSID: u32 = 0x5429;
pub(in super::super) const TIOCGPTPEER: u32 = 0x5441;
pub(in super::super) const TCGETS2: u32 = 0x802c_542a;
pub(in super::super) const TCSETS2: u32 = 0x402c_542b;
pub(in super::super) const TCSETSW2: u32 = 0x402c_542c;
pub(in super::super) const TCSETSF2: u32 = 0x402c_542d;
pub(in super::super) const TIOCGPTN: u32 = 0x8004_5430;
pub(in super::super) const TIOCSPTLCK: u32 = 0x4004_5431;
pub(in super::super) const TIOCGPTLCK: u32 = 0x8004_5439;
pub(in super::super) const FIONREAD: u32 = 0x541b;
pub(in super::super) const FIONBIO: u32 = 0x5421;
pub(in super::super) const FIONCLEX: u32 = 0x5450;
pub(in super::super) const FIOCLEX: u32 = 0x5451;
pub(in super::super) const FICLONE: u32 = 0x4004_9409;

// stat.h
pub(in super::super) const S_ISUID: u32 = 0o4000;
pub(in super::super) const S_ISGID: u32 = 0o2000;

// fs.h
pub(in super::super) const RWF_NOWAIT: u32 = 8;

// eventpoll.h
pub(in super::super) const EPOLL_CTL_ADD: u32 = 1;

// futex.h
pub(in super::super) const FUTEX_WAIT: u32 = 0;
pub(in super::super) const FUTEX_WAKE: u32 = 1;
pub(in super::super) const FUTEX_REQUEUE: u32 = 3;
pub(in super::super) const FUTEX_CMP_REQUEUE: u32 = 4;
pub(in super::super) const FUTEX_WAKE_OP: u32 = 5;
pub(in super::super) const FUTEX_WAIT_BITSET: u32 = 9;
pub(in super::super) const FUTEX_WAKE_BITSET: u32 = 10;
pub(in super::super) const FUTEX_PRIVATE_FLAG: u32 = 128;
pub(in super::super) const FUTEX_CLOCK_REALTIME: u32 = 256;

// prctl.h
pub(in super::super) const PR_GET_PDEATHSIG: u32 = 2;
pub(in super::super) const PR_GET_DUMPABLE: u32 = 3;
pub(in super::super) const PR_SET_NAME: u32 = 15;
pub(in super::super) const PR_GET_NAME: u32 = 16;
pub(in super::super) const PR_GET_SECCOMP: u32 = 21;
pub(in super::super) const PR_CAPBSET_READ: u32 = 23;
pub(in super::super) const PR_SET_TIMERSLACK: u32 = 29;
pub(in super::super) const PR_GET_TIMERSLACK: u32 = 30;
pub(in super::super) const PR_SET_NO_NEW_PRIVS: u32 = 38;
pub(in super::super) const PR_GET_NO_NEW_PRIVS: u32 = 39;
pub(in super::super) const PR_GET_TID_ADDRESS: u32 = 40;
pub(in super::super) const PR_SET_THP_DISABLE: u32 = 41;
pub(in super::super) const PR_GET_THP_DISABLE: u32 = 42;
pub(in super::super) const PR_SVE_GET_VL: u32 = 51;

// personality.h
pub(in super::super) const PER_LINUX: u32 = 0;
pub(in super::super) const PERSONALITY_QUERY: u32 = 0xffff_ffff;

// socket.h
pub(in super::super) const AF_UNIX: u32 = 1;
pub(in super::super) const AF_INET: u32 = 2;
pub(in super::super) const AF_INET6: u32 = 10;
pub(in super::super) const SOCK_STREAM: u32 = 1;
pub(in super::super) const SOCK_DGRAM: u32 = 2;
pub(in super::super) const SOCK_SEQPACKET: u32 = 5;
pub(in super::super) const SOCK_TYPE_MASK: u32 = 0xf;
pub(in super::super) const MSG_OOB: u32 = 1;
pub(in super::super) const SO_ATTACH_FILTER: u32 = 26;
pub(in super::super) const SO_ATTACH_BPF: u32 = 50;
pub(in super::super) const SO_ATTACH_REUSEPORT_CBPF: u32 = 51;
pub(in super::super) const SO_ATTACH_REUSEPORT_EBPF: u32 = 52;

pub(in super::super) const MSG_ZEROCOPY: u32 = 0x0400_0000;
pub(in super::super) const MSG_FASTOPEN: u32 = 0x2000_0000;
pub(in super::super) const SOL_SOCKET: u32 = 1;
pub(in super::super) const SO_REUSEADDR: u32 = 2;
pub(in super::super) const SO_DONTROUTE: u32 = 5;
pub(in super::super) const SO_BROADCAST: u32 = 6;
pub(in super::super) const SO_KEEPALIVE: u32 = 9;
pub(in super::super) const SO_OOBINLINE: u32 = 10;
pub(in super::super) const SO_LINGER: u32 = 13;
pub(in super::super) const SO_REUSEPORT: u32 = 15;
pub(in super::super) const SO_PASSCRED: u32 = 16;
pub(in super::super) const SO_SNDBUF: u32 = 7;
pub(in super::super) const SO_RCVBUF: u32 = 8;
pub(in super::super) const SO_RCVLOWAT: u32 = 18;
pub(in super::super) const SO_RCVTIMEO: u32 = 20;
pub(in super::super) const SO_SNDTIMEO: u32 = 21;

// in.h
pub(in super::super) const IPPROTO_IP: u32 = 0;
pub(in super::super) const IPPROTO_TCP: u32 = 6;
pub(in super::super) const IPPROTO_UDP: u32 = 17;
pub(in super::super) const IPPROTO_IPV6: u32 = 41;
pub(in super::super) const IP_TOS: u32 = 1;
pub(in super::super) const IP_TTL: u32 = 2;
pub(in super::super) const IP_PKTINFO: u32 = 8;
pub(in super::super) const IP_MTU_DISCOVER: u32 = 10;
pub(in super::super) const IP_RECVERR: u32 = 11;
pub(in super::super) const IP_RECVTTL: u32 = 12;
pub(in super::super) const IP_RECVTOS: u32 = 13;
pub(in super::super) const IP_BIND_ADDRESS_NO_PORT: u32 = 24;
pub(in super::super) const IP_MULTICAST_TTL: u32 = 33;
pub(in super::super) const IP_MULTICAST_LOOP: u32 = 34;

// in6.h
pub(in super::super) const IPV6_UNICAST_HOPS: u32 = 16;
pub(in super::super) const IPV6_MULTICAST_HOPS: u32 = 18;
pub(in super::super) const IPV6_MULTICAST_LOOP: u32 = 19;
pub(in super::super) const IPV6_MTU_DISCOVER: u32 = 23;
pub(in super::super) const IPV6_RECVERR: u32 = 25;
pub(in super::super) const IPV6_V6ONLY: u32 = 26;
pub(in super::super) const IPV6_RECVPKTINFO: u32 = 49;
pub(in super::super) const IPV6_RECVHOPLIMIT: u32 = 51;
pub(in super::super) const IPV6_RECVTCLASS: u32 = 66;
pub(in super::super) const IPV6_TCLASS: u32 = 67;

// tcp.h
pub(in super::super) const TCP_NODELAY: u32 = 1;
pub(in super::super) const TCP_MAXSEG: u32 = 2;
pub(in super::super) const TCP_CORK: u32 = 3;
pub(in super::super) const TCP_KEEPIDLE: u32 = 4;
pub(in super::super) const TCP_KEEPINTVL: u32 = 5;
pub(in super::super) const TCP_KEEPCNT: u32 = 6;
pub(in super::super) const TCP_SYNCNT: u32 = 7;
pub(in super::super) const TCP_LINGER2: u32 = 8;
pub(in super::super) const TCP_DEFER_ACCEPT: u32 = 9;
pub(in super::super) const TCP_WINDOW_CLAMP: u32 = 10;
pub(in super::super) const TCP_QUICKACK: u32 = 12;
pub(in super::super) const TCP_USER_TIMEOUT: u32 = 18;
pub(in super::super) const TCP_NOTSENT_LOWAT: u32 = 25;
pub(in super::super) const TCP_ZEROCOPY_RECEIVE: u32 = 35;

// resource.h, ioprio.h
pub(in super::super) const IOPRIO_WHO_PROCESS: u32 = 1;
/// The caller itself, in a call that takes a process id.
pub(in super::super) const SELF: u32 = 0;

/// The first process of a pid namespace.
pub(in super::super) const INIT: u32 = 1;
/// In calls that set an id: leave it as it is. As an id it belongs to no user.
pub(in super::super) const UNCHANGED: u32 = 0xffff_ffff;

// sched.h
pub(in super::super) const SCHED_OTHER: u32 = 0;
