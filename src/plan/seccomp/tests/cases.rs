//! Calls with arguments and their expected answers, written by hand from the purpose of the rules.
//! The unit tests run them through an interpreter, `tests/seccomp_kernel` through the kernel.
//!
//! Allowed calls are chosen so that the kernel returns immediately and changes nothing that outlives the
//! process.

/// The surroundings in which a case holds.
#[derive(Clone, Copy, Debug)]
pub enum Where {
    Anywhere,
    /// With namespaces, with and without a loopback interface.
    Namespaces,
    NoNetwork,
    Loopback,
    SharedHost {
        landlock_abi: u32,
    },
}

/// A call and its expected answer. `errno` is the filter's error; without it the call reaches the kernel.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub surroundings: Where,
    pub syscall: &'static str,
    pub arguments: [u64; 6],
    pub errno: Option<i32>,
}

const fn allowed(syscall: &'static str, arguments: [u64; 6]) -> Case {
    Case {
        surroundings: Where::Anywhere,
        syscall,
        arguments,
        errno: None,
    }
}

const fn denied(syscall: &'static str, arguments: [u64; 6], errno: i32) -> Case {
    Case {
        surroundings: Where::Anywhere,
        syscall,
        arguments,
        errno: Some(errno),
    }
}

impl Case {
    const fn at(mut self, surroundings: Where) -> Self {
        self.surroundings = surroundings;
        self
    }

    const fn with_namespaces(self) -> Self {
        self.at(Where::Namespaces)
    }

    const fn with_no_network(self) -> Self {
        self.at(Where::NoNetwork)
    }

    const fn with_loopback(self) -> Self {
        self.at(Where::Loopback)
    }

    const fn on_shared_host(self, landlock_abi: u32) -> Self {
        self.at(Where::SharedHost { landlock_abi })
    }
}

const NO_FD: u64 = u64::MAX;
const SIGCHLD: u64 = 17;
/// A PID above the kernel's maximum (`PID_MAX_LIMIT`).
const NO_PROCESS: u64 = 0x7fff_ffff;
/// The guest's id, and the value that leaves an id unchanged.
const OWN: u64 = 1000;
const SAME: u64 = 0xffff_ffff;

pub const CASES: &[Case] = &[
    // clone: a plain child, and each flag that is refused.
    allowed("clone", [SIGCHLD, 0, 0, 0, 0, 0]),
    denied("clone", [0x0002_0000 | SIGCHLD, 0, 0, 0, 0, 0], libc::EPERM),
    denied("clone", [0x0200_0000 | SIGCHLD, 0, 0, 0, 0, 0], libc::EPERM),
    denied("clone", [0x0400_0000 | SIGCHLD, 0, 0, 0, 0, 0], libc::EPERM),
    denied("clone", [0x0800_0000 | SIGCHLD, 0, 0, 0, 0, 0], libc::EPERM),
    denied("clone", [0x1000_0000 | SIGCHLD, 0, 0, 0, 0, 0], libc::EPERM),
    denied("clone", [0x2000_0000 | SIGCHLD, 0, 0, 0, 0, 0], libc::EPERM),
    denied("clone", [0x4000_0000 | SIGCHLD, 0, 0, 0, 0, 0], libc::EPERM),
    denied("clone", [0x0000_8000 | SIGCHLD, 0, 0, 0, 0, 0], libc::EPERM),
    denied("clone", [0xdead_0000_1000_0011, 0, 0, 0, 0, 0], libc::EPERM),
    denied("clone3", [0, 0, 0, 0, 0, 0], libc::ENOSYS),
    // futex: wait and wake in all variants; priority inheritance.
    allowed("futex", [0, 1, 1, 0, 0, 0]),
    allowed("futex", [0, 0x81, 1, 0, 0, 0]),
    allowed("futex", [0, 0x189, 0, 0, 0, 1]),
    denied("futex", [0, 6, 0, 0, 0, 0], libc::ENOSYS),
    denied("futex", [0, 0x86, 0, 0, 0, 0], libc::ENOSYS),
    denied("futex", [0, 0x8b, 0, 0, 0, 0], libc::ENOSYS),
    denied("futex", [0, 12, 0, 0, 0, 0], libc::ENOSYS),
    denied(
        "futex",
        [0, 0xdead_0000_0000_000c, 0, 0, 0, 0],
        libc::ENOSYS,
    ),
    // ioctl: FIONREAD, FICLONE and TIOCSCTTY; TIOCSTI, TIOCLINUX, TIOCCONS and TIOCSETD, also with the upper
    // half set.
    allowed("ioctl", [NO_FD, 0x541b, 0, 0, 0, 0]),
    allowed("ioctl", [NO_FD, 0x4004_9409, 0, 0, 0, 0]),
    allowed("ioctl", [NO_FD, 0xdead_0000_0000_5401, 0, 0, 0, 0]),
    denied("ioctl", [NO_FD, 0x5412, 0, 0, 0, 0], libc::ENOTTY),
    denied(
        "ioctl",
        [NO_FD, 0xffff_ffff_0000_5412, 0, 0, 0, 0],
        libc::ENOTTY,
    ),
    denied("ioctl", [NO_FD, 0x541c, 0, 0, 0, 0], libc::ENOTTY),
    allowed("ioctl", [NO_FD, 0x540e, 0, 0, 0, 0]),
    denied("ioctl", [NO_FD, 0x541d, 0, 0, 0, 0], libc::ENOTTY),
    denied("ioctl", [NO_FD, 0x5423, 0, 0, 0, 0], libc::ENOTTY),
    // prctl: PR_GET_NO_NEW_PRIVS; PR_SET_SECCOMP, PR_SET_MM, PR_SET_PTRACER, PR_SET_DUMPABLE,
    // PR_CAP_AMBIENT, PR_SET_MEMORY_MERGE.
    allowed("prctl", [39, 0, 0, 0, 0, 0]),
    allowed("prctl", [21, 0, 0, 0, 0, 0]),
    denied("prctl", [22, 2, 0, 0, 0, 0], libc::EPERM),
    denied("prctl", [35, 0, 0, 0, 0, 0], libc::EPERM),
    denied("prctl", [0x5961_6d61, 0, 0, 0, 0, 0], libc::EPERM),
    denied("prctl", [4, 1, 0, 0, 0, 0], libc::EPERM),
    denied("prctl", [47, 4, 0, 0, 0, 0], libc::EPERM),
    denied("prctl", [67, 1, 0, 0, 0, 0], libc::EPERM),
    // PR_SET_PDEATHSIG, which only a pid namespace makes harmless, and PR_SET_CHILD_SUBREAPER.
    allowed("prctl", [1, 15, 0, 0, 0, 0]).with_namespaces(),
    denied("prctl", [1, 15, 0, 0, 0, 0], libc::EPERM).on_shared_host(6),
    denied("prctl", [36, 1, 0, 0, 0, 0], libc::EPERM),
    // personality: query; ADDR_NO_RANDOMIZE, READ_IMPLIES_EXEC.
    allowed("personality", [0xffff_ffff, 0, 0, 0, 0, 0]),
    denied("personality", [0x0004_0000, 0, 0, 0, 0, 0], libc::EPERM),
    denied("personality", [0x0040_0000, 0, 0, 0, 0, 0], libc::EPERM),
    // prlimit64: RLIMIT_NOFILE of the caller; of another process; of init.
    allowed("prlimit64", [0, 7, 0, 0, 0, 0]),
    allowed("prlimit64", [NO_PROCESS, 7, 0, 0, 0, 0]).with_namespaces(),
    denied("prlimit64", [NO_PROCESS, 7, 0, 0, 0, 0], libc::EPERM).on_shared_host(6),
    denied("prlimit64", [1, 7, 0, 0, 0, 0], libc::EPERM),
    denied(
        "prlimit64",
        [0xdead_0000_0000_0001, 7, 0, 0, 0, 0],
        libc::EPERM,
    ),
    // Scheduling: SCHED_OTHER; SCHED_FIFO, SCHED_BATCH, SCHED_IDLE, SCHED_RESET_ON_FORK. The kernel would answer
    // EINVAL to a call without parameters, and EFAULT to one without a mask.
    allowed("sched_setscheduler", [0, 0, 0, 0, 0, 0]),
    allowed("sched_setscheduler", [NO_PROCESS, 0, 0, 0, 0, 0]).with_namespaces(),
    denied(
        "sched_setscheduler",
        [NO_PROCESS, 0, 0, 0, 0, 0],
        libc::EPERM,
    )
    .on_shared_host(6),
    denied("sched_setscheduler", [0, 1, 0, 0, 0, 0], libc::EPERM),
    denied("sched_setscheduler", [0, 3, 0, 0, 0, 0], libc::EPERM),
    denied("sched_setscheduler", [0, 5, 0, 0, 0, 0], libc::EPERM),
    denied(
        "sched_setscheduler",
        [0, 0x4000_0000, 0, 0, 0, 0],
        libc::EPERM,
    ),
    allowed("sched_setparam", [0, 0, 0, 0, 0, 0]),
    allowed("sched_setparam", [NO_PROCESS, 0, 0, 0, 0, 0]).with_namespaces(),
    denied("sched_setparam", [NO_PROCESS, 0, 0, 0, 0, 0], libc::EPERM).on_shared_host(1),
    denied("sched_setparam", [NO_PROCESS, 0, 0, 0, 0, 0], libc::EPERM).on_shared_host(3),
    denied("sched_setparam", [NO_PROCESS, 0, 0, 0, 0, 0], libc::EPERM).on_shared_host(6),
    denied("sched_setattr", [0, 0, 0, 0, 0, 0], libc::EPERM),
    denied("sched_setaffinity", [0, 0, 0, 0, 0, 0], 0),
    // Ids: the guest's own and unchanged; those of root, of another user, and mixed with the guest's own.
    allowed("setuid", [OWN, 0, 0, 0, 0, 0]).with_namespaces(),
    allowed("setgid", [OWN, 0, 0, 0, 0, 0]).with_namespaces(),
    denied("setuid", [0, 0, 0, 0, 0, 0], libc::EPERM).with_namespaces(),
    denied("setgid", [0, 0, 0, 0, 0, 0], libc::EPERM).with_namespaces(),
    denied("setuid", [OWN + 1, 0, 0, 0, 0, 0], libc::EPERM).with_namespaces(),
    allowed("setreuid", [SAME, SAME, 0, 0, 0, 0]),
    allowed("setreuid", [OWN, OWN, 0, 0, 0, 0]).with_namespaces(),
    allowed("setregid", [SAME, SAME, 0, 0, 0, 0]),
    denied("setreuid", [SAME, 0, 0, 0, 0, 0], libc::EPERM).with_namespaces(),
    denied("setregid", [0, SAME, 0, 0, 0, 0], libc::EPERM).with_namespaces(),
    allowed("setresuid", [SAME, SAME, SAME, 0, 0, 0]),
    allowed("setresuid", [SAME, OWN, SAME, 0, 0, 0]).with_namespaces(),
    allowed("setresgid", [SAME, SAME, SAME, 0, 0, 0]),
    denied("setresuid", [0, SAME, SAME, 0, 0, 0], libc::EPERM).with_namespaces(),
    denied("setresuid", [OWN, 0, OWN, 0, 0, 0], libc::EPERM).with_namespaces(),
    denied("setresuid", [SAME, SAME, 0, 0, 0, 0], libc::EPERM).with_namespaces(),
    denied("setresgid", [SAME, SAME, OWN - 1, 0, 0, 0], libc::EPERM).with_namespaces(),
    allowed("setfsuid", [SAME, 0, 0, 0, 0, 0]),
    allowed("setfsgid", [SAME, 0, 0, 0, 0, 0]),
    denied("setfsuid", [0, 0, 0, 0, 0, 0], libc::EPERM).with_namespaces(),
    denied("setfsgid", [0, 0, 0, 0, 0, 0], libc::EPERM).with_namespaces(),
    denied("setgroups", [0, 0, 0, 0, 0, 0], libc::EPERM),
    // memfd_create: with MFD_NOEXEC_SEAL; without, with MFD_EXEC, with MFD_HUGETLB.
    allowed("memfd_create", [0, 0x8, 0, 0, 0, 0]),
    allowed("memfd_create", [0, 0xb, 0, 0, 0, 0]),
    denied("memfd_create", [0, 0x1, 0, 0, 0, 0], libc::EPERM),
    denied("memfd_create", [0, 0x10, 0, 0, 0, 0], libc::EPERM),
    denied("memfd_create", [0, 0x18, 0, 0, 0, 0], libc::EPERM),
    denied("memfd_create", [0, 0xc, 0, 0, 0, 0], libc::EPERM),
    // mmap: a private anonymous page; the same from the reserved huge pages.
    allowed("mmap", [0, 4096, 1, 0x22, NO_FD, 0]),
    denied("mmap", [0, 4096, 1, 0x4_0022, NO_FD, 0], libc::ENOMEM),
    // madvise: MADV_DONTNEED; MADV_MERGEABLE.
    allowed("madvise", [0, 0, 4, 0, 0, 0]),
    denied("madvise", [0, 0, 12, 0, 0, 0], libc::EINVAL),
    denied(
        "madvise",
        [0, 0, 0xdead_0000_0000_000c, 0, 0, 0],
        libc::EINVAL,
    ),
    // socket: AF_UNIX; AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_ALG, AF_VSOCK, AF_XDP.
    allowed("socket", [1, 1, 0, 0, 0, 0]).with_namespaces(),
    denied("socket", [2, 1, 0, 0, 0, 0], libc::EPERM).with_no_network(),
    denied("socket", [10, 1, 0, 0, 0, 0], libc::EPERM).with_no_network(),
    denied("socket", [16, 3, 0, 0, 0, 0], libc::EPERM).with_no_network(),
    denied("socket", [17, 3, 0, 0, 0, 0], libc::EPERM).with_no_network(),
    denied("socket", [38, 5, 0, 0, 0, 0], libc::EPERM).with_no_network(),
    denied("socket", [40, 1, 0, 0, 0, 0], libc::EPERM).with_no_network(),
    denied("socket", [44, 3, 0, 0, 0, 0], libc::EPERM).with_no_network(),
    denied("socket", [1, 1, 0, 0, 0, 0], libc::EPERM).on_shared_host(6),
    allowed("socketpair", [1, 1, 0, 0, 0, 0]),
    allowed("socketpair", [1, 5 | 0o2_000_000, 0, 0, 0, 0]),
    denied("socketpair", [30, 1, 0, 0, 0, 0], libc::EPERM),
    allowed("socketpair", [1, 2, 0, 0, 0, 0]).with_namespaces(),
    denied("socketpair", [1, 2, 0, 0, 0, 0], libc::EPERM).on_shared_host(6),
    denied("socketpair", [1, 3, 0, 0, 0, 0], libc::EPERM).on_shared_host(6),
    // MSG_OOB.
    allowed("sendto", [NO_FD, 0, 0, 0x4000, 0, 0]),
    denied("sendto", [NO_FD, 0, 0, 1, 0, 0], libc::EOPNOTSUPP),
    allowed("sendmsg", [NO_FD, 0, 0x4000, 0, 0, 0]),
    denied("sendmsg", [NO_FD, 0, 0x4001, 0, 0, 0], libc::EOPNOTSUPP),
    allowed("sendmmsg", [NO_FD, 0, 0, 0x4000, 0, 0]),
    denied("sendmmsg", [NO_FD, 0, 0, 1, 0, 0], libc::EOPNOTSUPP),
    // setsockopt: SO_RCVBUF; SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF and _EBPF.
    allowed("setsockopt", [NO_FD, 1, 9, 0, 0, 0]),
    denied("setsockopt", [NO_FD, 1, 26, 0, 0, 0], libc::EPERM),
    denied("setsockopt", [NO_FD, 1, 50, 0, 0, 0], libc::EPERM),
    denied("setsockopt", [NO_FD, 1, 51, 0, 0, 0], libc::EPERM),
    denied("setsockopt", [NO_FD, 1, 52, 0, 0, 0], libc::EPERM),
    // Shared host: times of an open file, and of a path.
    allowed("utimensat", [NO_FD, 0, 0, 0, 0, 0]).with_namespaces(),
    denied("utimensat", [NO_FD, 0, 0, 0, 0, 0], libc::EPERM).on_shared_host(6),
    allowed("utimensat", [NO_FD, 8, 0, 0, 0, 0]).with_namespaces(),
    denied("utimensat", [NO_FD, 8, 0, 0, 0, 0], libc::EPERM).on_shared_host(1),
    denied("utimensat", [NO_FD, 8, 0, 0, 0, 0], libc::EPERM).on_shared_host(3),
    denied("utimensat", [NO_FD, 8, 0, 0, 0, 0], libc::EPERM).on_shared_host(6),
    // Shared host: the caller's own priorities.
    // The kernel has no `which` 9.
    denied("setpriority", [9, 0, 19, 0, 0, 0], 0),
    denied("setpriority", [9, 1, 19, 0, 0, 0], 0).on_shared_host(1),
    allowed("ioprio_set", [1, 0, 0, 0, 0, 0]),
    denied("ioprio_set", [1, 1, 0, 0, 0, 0], libc::EPERM).on_shared_host(1),
    denied("ioprio_set", [1, 1, 0, 0, 0, 0], libc::EPERM).on_shared_host(3),
    denied("ioprio_set", [3, 0, 0, 0, 0, 0], libc::EPERM).on_shared_host(6),
    // Shared host before truncation is handled: O_RDONLY|O_TRUNC and access mode 3.
    allowed("open", [0, 0o1001, 0, 0, 0, 0]),
    denied("open", [0, 0o1000, 0, 0, 0, 0], libc::EPERM).on_shared_host(1),
    allowed("open", [0, 0o1000, 0, 0, 0, 0]).on_shared_host(3),
    allowed("openat", [NO_FD, 0, 0o1102, 0, 0, 0]),
    denied("openat", [NO_FD, 0, 0o1000, 0, 0, 0], libc::EPERM).on_shared_host(1),
    denied("openat", [NO_FD, 0, 0o1003, 0, 0, 0], libc::EPERM).on_shared_host(1),
    allowed("openat", [NO_FD, 0, 0o1000, 0, 0, 0]).on_shared_host(3),
    denied("truncate", [0, 0, 0, 0, 0, 0], libc::EPERM).on_shared_host(1),
    allowed("truncate", [0, 0, 0, 0, 0, 0]).on_shared_host(3),
    // Shared host before signals are scoped.
    allowed("kill", [0, 0, 0, 0, 0, 0]).on_shared_host(1),
    denied("kill", [1, 0, 0, 0, 0, 0], libc::ENOSYS).on_shared_host(1),
    allowed("kill", [0, 0, 0, 0, 0, 0]).on_shared_host(3),
    denied("kill", [1, 0, 0, 0, 0, 0], libc::ENOSYS).on_shared_host(3),
    allowed("tgkill", [0, 0, 0, 0, 0, 0]).on_shared_host(1),
    denied("tgkill", [1, 1, 0, 0, 0, 0], libc::ENOSYS).on_shared_host(1),
    allowed("tgkill", [0, 0, 0, 0, 0, 0]).on_shared_host(3),
    denied("tgkill", [1, 1, 0, 0, 0, 0], libc::ENOSYS).on_shared_host(3),
    denied("tkill", [1, 0, 0, 0, 0, 0], libc::EPERM).on_shared_host(3),
    allowed("kill", [0, 0, 0, 0, 0, 0]).on_shared_host(6),
    allowed("fcntl", [NO_FD, 1, 0, 0, 0, 0]),
    denied("fcntl", [NO_FD, 8, 1, 0, 0, 0], libc::EPERM).on_shared_host(1),
    denied("fcntl", [NO_FD, 10, 9, 0, 0, 0], libc::EPERM).on_shared_host(3),
    denied("fcntl", [NO_FD, 15, 0, 0, 0, 0], libc::EPERM).on_shared_host(3),
    allowed("fcntl", [NO_FD, 8, 1, 0, 0, 0]).on_shared_host(6),
    // File locks: F_GETLK, F_SETLK, F_SETLKW, F_OFD_SETLK, flock(2). Without a supervisor that listens, the kernel
    // returns ENOSYS.
    denied("fcntl", [NO_FD, 5, 0, 0, 0, 0], libc::ENOSYS),
    denied("fcntl", [NO_FD, 6, 0, 0, 0, 0], libc::ENOSYS),
    denied("fcntl", [NO_FD, 7, 0, 0, 0, 0], libc::ENOSYS),
    denied("fcntl", [NO_FD, 37, 0, 0, 0, 0], libc::ENOSYS),
    denied("fcntl", [NO_FD, 6, 0, 0, 0, 0], libc::ENOSYS).on_shared_host(1),
    denied("flock", [NO_FD, 8, 0, 0, 0, 0], libc::ENOSYS),
    // EPOLL_CTL_ADD; EPOLL_CTL_DEL.
    denied("epoll_ctl", [NO_FD, 1, NO_FD, 0, 0, 0], libc::ENOSYS),
    allowed("epoll_ctl", [NO_FD, 2, NO_FD, 0, 0, 0]),
    // fcntl: F_SETLEASE and F_NOTIFY.
    denied("fcntl", [NO_FD, 1024, 1, 0, 0, 0], libc::EPERM),
    denied("fcntl", [NO_FD, 1026, 1, 0, 0, 0], libc::EPERM),
    denied("fcntl", [NO_FD, 1031, 1 << 20, 0, 0, 0], libc::EPERM),
    denied("fcntl", [NO_FD, 1031, 1 << 20, 0, 0, 0], libc::EPERM).on_shared_host(1),
    // fadvise64: POSIX_FADV_WILLNEED; POSIX_FADV_DONTNEED. fsync. The kernel would return EBADF.
    allowed("fadvise64", [NO_FD, 0, 0, 3, 0, 0]),
    denied("fadvise64", [NO_FD, 0, 0, 4, 0, 0], 0),
    denied("fsync", [NO_FD, 0, 0, 0, 0, 0], 0),
    denied("fdatasync", [NO_FD, 0, 0, 0, 0, 0], 0),
    // Shared host: attributes by path.
    allowed("getxattr", [0, 0, 0, 0, 0, 0]).with_namespaces(),
    denied("getxattr", [0, 0, 0, 0, 0, 0], libc::EPERM).on_shared_host(6),
    denied("llistxattr", [0, 0, 0, 0, 0, 0], libc::EPERM).on_shared_host(1),
    // With a loopback interface: AF_UNIX of each type; TCP and UDP by both families, with flags and by name; raw
    // sockets, ICMP, SCTP, MPTCP and UDP-Lite; AF_NETLINK, AF_PACKET, AF_VSOCK.
    allowed("socket", [1, 1, 0, 0, 0, 0]).with_loopback(),
    allowed("socket", [1, 5 | 0o2_000_000, 0, 0, 0, 0]).with_loopback(),
    allowed("socket", [2, 1, 0, 0, 0, 0]).with_loopback(),
    allowed("socket", [10, 2 | 0o2_004_000, 17, 0, 0, 0]).with_loopback(),
    allowed("socket", [10, 1, 6, 0, 0, 0]).with_loopback(),
    denied("socket", [2, 3, 255, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socket", [2, 3, 0, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socket", [2, 2, 1, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socket", [10, 2, 58, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socket", [2, 5, 0, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socket", [2, 1, 132, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socket", [2, 1, 262, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socket", [2, 2, 136, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socket", [16, 3, 0, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socket", [17, 3, 0, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socket", [40, 1, 0, 0, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied("socketpair", [2, 1, 0, 0, 0, 0], libc::EPERM).with_loopback(),
    // setsockopt: SO_REUSEADDR, TCP_NODELAY, IP_TTL, IPV6_V6ONLY; SO_SNDBUF, SO_RCVBUF and their _FORCE variants,
    // IP_RETOPTS, SO_BINDTODEVICE, SO_MARK, SO_ZEROCOPY, SO_BINDTOIFINDEX, TCP_CONGESTION, TCP_MD5SIG, TCP_REPAIR,
    // TCP_FASTOPEN, TCP_ULP, IP_OPTIONS, IP_ADD_MEMBERSHIP, IPV6_ADDRFORM, UDP_ENCAP, IPT_SO_SET_REPLACE.
    allowed("setsockopt", [NO_FD, 1, 2, 0, 0, 0]).with_loopback(),
    allowed("setsockopt", [NO_FD, 6, 1, 0, 0, 0]).with_loopback(),
    allowed("setsockopt", [NO_FD, 0, 2, 0, 0, 0]).with_loopback(),
    allowed("setsockopt", [NO_FD, 41, 26, 0, 0, 0]).with_loopback(),
    denied("setsockopt", [NO_FD, 1, 7, 0, 0, 0], 0).with_loopback(),
    denied("setsockopt", [NO_FD, 1, 8, 0, 0, 0], 0).with_loopback(),
    denied("setsockopt", [NO_FD, 1, 32, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 1, 33, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 0, 7, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 1, 25, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 1, 36, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 1, 60, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 1, 62, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 6, 13, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 6, 14, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 6, 19, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 6, 23, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 6, 31, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 0, 4, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 0, 35, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 41, 1, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 17, 100, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("setsockopt", [NO_FD, 0, 64, 0, 0, 0], libc::EPERM).with_loopback(),
    // getsockopt: SO_ERROR; TCP_ZEROCOPY_RECEIVE. sendto, sendmsg and sendmmsg: MSG_ZEROCOPY, MSG_FASTOPEN.
    allowed("getsockopt", [NO_FD, 1, 4, 0, 0, 0]).with_loopback(),
    allowed("getsockopt", [NO_FD, 1, 35, 0, 0, 0]).with_loopback(),
    denied("getsockopt", [NO_FD, 6, 35, 0, 0, 0], libc::EPERM).with_loopback(),
    denied("sendto", [NO_FD, 0, 0, 0x0400_0000, 0, 0], libc::EOPNOTSUPP).with_loopback(),
    denied(
        "sendmsg",
        [NO_FD, 0, 0x2000_0000, 0, 0, 0],
        libc::EOPNOTSUPP,
    )
    .with_loopback(),
    denied(
        "sendmmsg",
        [NO_FD, 0, 0, 0x2000_0000, 0, 0],
        libc::EOPNOTSUPP,
    )
    .with_loopback(),
    // preadv2: RWF_HIPRI; RWF_NOWAIT, also with other flags.
    allowed("preadv2", [NO_FD, 0, 0, 0, 0, 1]),
    denied("preadv2", [NO_FD, 0, 0, 0, 0, 8], libc::EOPNOTSUPP),
    denied("preadv2", [NO_FD, 0, 0, 0, 0, 9], libc::EOPNOTSUPP),
];
