//! The system calls of the egress process: one thread and internet sockets, but no files and no other processes.

use super::super::rule::{Errno, Rule, allow, allow_if, clear, masked_one_of, one_of};
use sandfork_jail::uapi::{
    AF_INET, AF_INET6, F_DUPFD_CLOEXEC, F_GETFD, F_GETFL, F_GETPIPE_SZ, F_SETFD, F_SETFL,
    F_SETPIPE_SZ, FIONBIO, PROT_EXEC, SOCK_DGRAM, SOCK_STREAM, SOCK_TYPE_MASK,
};

pub(super) const RULES: &[Rule] = &[
    allow_if(
        "tcp and udp, no other family",
        "socket",
        &[
            one_of(0, &[AF_INET, AF_INET6]),
            masked_one_of(1, SOCK_TYPE_MASK, &[SOCK_STREAM, SOCK_DGRAM]),
        ],
        Errno::Perm,
    ),
    allow(
        "make connections, and accept those of guests on sockets that listen already",
        "bind connect accept accept4 shutdown getsockname getpeername getsockopt setsockopt",
    ),
    allow(
        "data of the connections, and messages of the supervisor",
        "read write readv writev recvfrom recvmsg sendto sendmsg splice pipe2 close",
    ),
    allow_if(
        "flags of descriptors, and the size of pipes between two connections",
        "fcntl",
        &[one_of(
            1,
            &[
                F_GETFD,
                F_SETFD,
                F_GETFL,
                F_SETFL,
                F_DUPFD_CLOEXEC,
                F_SETPIPE_SZ,
                F_GETPIPE_SZ,
            ],
        )],
        Errno::Perm,
    ),
    allow_if(
        "make sockets non-blocking",
        "ioctl",
        &[one_of(1, &[FIONBIO])],
        Errno::NotTty,
    ),
    allow(
        "wait for events",
        "epoll_create1 epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd2 poll ppoll futex \
         clock_gettime clock_nanosleep nanosleep restart_syscall sched_yield",
    ),
    allow_if(
        "map memory, but no code",
        "mmap mprotect",
        &[clear(2, PROT_EXEC)],
        Errno::Perm,
    ),
    allow("release and resize memory", "munmap mremap brk madvise"),
    allow("random numbers for keys and DNS queries", "getrandom"),
    allow(
        "handle signals and exit",
        "rt_sigaction rt_sigprocmask rt_sigreturn sigaltstack exit exit_group getpid gettid",
    ),
];
