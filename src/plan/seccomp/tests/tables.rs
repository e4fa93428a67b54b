//! The tables themselves: names, constants, and entries that must never be missing.

use std::collections::BTreeSet;

use super::super::preset::uapi;
use super::super::{
    Arch, Errno, Grant, Preset, Rule, Surroundings, Verdict, known_syscall, syscall_number,
    syscalls,
};
use super::SURROUNDINGS;

#[test]
fn every_line_of_the_table_of_names_is_read() {
    let lines = include_str!("../syscalls.tbl").lines();
    let rows: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let names: BTreeSet<&str> = rows
        .iter()
        .map(|row| row.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(names.len(), rows.len(), "a name stands twice");
    for row in rows {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let [name, x86_64, aarch64] = columns[..] else {
            panic!("{row}")
        };
        assert!(known_syscall(name));
        for (arch, column) in [(Arch::X86_64, x86_64), (Arch::Aarch64, aarch64)] {
            let number = syscall_number(arch, name);
            assert_eq!(
                number.map_or("-".into(), |number| number.to_string()),
                column,
                "{name}"
            );
        }
    }
}

#[test]
fn numbers_are_unique() {
    for arch in super::ARCHES {
        let numbers: Vec<u32> = syscalls(arch).map(|(_, number)| number).collect();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
    }
}

/// A sample of each kind: oldest, newest, moved between architectures, absent from one.
#[test]
fn numbers_are_those_of_libc() {
    let arch = match std::env::consts::ARCH {
        "x86_64" => Arch::X86_64,
        _ => Arch::Aarch64,
    };
    for (name, number) in [
        ("read", libc::SYS_read),
        ("clone", libc::SYS_clone),
        ("execve", libc::SYS_execve),
        ("ptrace", libc::SYS_ptrace),
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("prctl", libc::SYS_prctl),
        ("personality", libc::SYS_personality),
        ("newfstatat", libc::SYS_newfstatat),
        ("fadvise64", libc::SYS_fadvise64),
        ("setns", libc::SYS_setns),
        ("unshare", libc::SYS_unshare),
        ("seccomp", libc::SYS_seccomp),
        ("bpf", libc::SYS_bpf),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("rseq", libc::SYS_rseq),
        ("io_uring_setup", libc::SYS_io_uring_setup),
        ("clone3", libc::SYS_clone3),
        ("landlock_restrict_self", libc::SYS_landlock_restrict_self),
        ("futex_waitv", libc::SYS_futex_waitv),
        ("mseal", libc::SYS_mseal),
    ] {
        assert_eq!(
            syscall_number(arch, name).map(i64::from),
            Some(number),
            "{name}"
        );
    }
}

#[test]
fn rules_name_real_calls_and_say_why() {
    for surroundings in SURROUNDINGS {
        let Preset { guest, jail } = Preset::of(surroundings);
        for (name, rule) in guest.iter().chain(&jail) {
            assert!(known_syscall(name), "{name}");
            assert!(rule.reason.len() > 10, "{name}");
        }
    }
}

#[test]
fn no_call_stands_in_two_rules_of_one_table() {
    for tables in super::super::preset::tables() {
        let mut seen = BTreeSet::new();
        for name in tables.iter().flat_map(Rule::names) {
            assert!(seen.insert(name), "{name}");
        }
    }
}

/// The guest's tables refuse, by name, each call that only the jail may make. A call of the set-up
/// that they omit would stay open to the guest.
#[test]
fn the_guest_has_a_verdict_on_each_call_of_the_jail() {
    for surroundings in SURROUNDINGS {
        let Preset { guest, jail } = Preset::of(surroundings);
        for name in jail.keys() {
            assert_ne!(guest[name].verdict, Verdict::Allow, "{name}");
        }
    }
}

#[test]
fn ways_out_are_refused_with_eperm_and_cannot_be_allowed() {
    let ways_out = "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd bpf \
        perf_event_open userfaultfd add_key request_key keyctl io_uring_setup io_uring_enter \
        io_uring_register open_by_handle_at kexec_load kexec_file_load init_module finit_module \
        delete_module reboot swapon swapoff mount umount2 pivot_root chroot unshare setns \
        mount_setattr move_mount open_tree fsopen fsconfig fsmount fspick \
        quotactl acct sethostname setdomainname seccomp capset settimeofday clock_settime iopl \
        ioperm modify_ldt fanotify_init";
    for surroundings in SURROUNDINGS {
        let guest = Preset::of(surroundings).guest;
        for name in ways_out.split_whitespace() {
            let expected = Verdict::Refuse {
                errno: Errno::Perm,
                grant: Grant::Never,
            };
            assert_eq!(guest[name].verdict, expected, "{name}");
        }
    }
}

#[test]
fn refused_until_a_policy_asks() {
    let guest = Preset::of(Surroundings::Namespaces).guest;
    for name in [
        "splice",
        "tee",
        "vmsplice",
        "execveat",
        "name_to_handle_at",
        "shmget",
        "mbind",
    ] {
        let expected = Verdict::Refuse {
            errno: Errno::Perm,
            grant: Grant::ByPolicy,
        };
        assert_eq!(guest[name].verdict, expected, "{name}");
    }
}

/// New calls are reviewed one by one. Reviewed so far: Landlock's own calls, futexes, fchmodat2 and
/// mseal.
#[test]
fn of_the_newest_calls_few_are_allowed() {
    let guest = Preset::of(Surroundings::Namespaces).guest;
    let allowed: BTreeSet<u32> = syscalls(Arch::X86_64)
        .filter(|(name, _)| {
            guest
                .get(name)
                .is_some_and(|rule| rule.verdict == Verdict::Allow)
        })
        .map(|(_, number)| number)
        .filter(|number| *number >= 444)
        .collect();
    assert_eq!(
        allowed,
        BTreeSet::from([444, 445, 446, 449, 452, 454, 455, 462])
    );
}

#[test]
fn constants_are_those_of_libc() {
    let pairs = [
        (uapi::SCHED_OTHER, libc::SCHED_OTHER),
        (uapi::CLONE_PARENT, libc::CLONE_PARENT),
        (uapi::CLONE_NEWNS, libc::CLONE_NEWNS),
        (uapi::CLONE_NEWCGROUP, libc::CLONE_NEWCGROUP),
        (uapi::CLONE_NEWUTS, libc::CLONE_NEWUTS),
        (uapi::CLONE_NEWIPC, libc::CLONE_NEWIPC),
        (uapi::CLONE_NEWUSER, libc::CLONE_NEWUSER),
        (uapi::CLONE_NEWPID, libc::CLONE_NEWPID),
        (uapi::CLONE_NEWNET, libc::CLONE_NEWNET),
        (uapi::MAP_HUGETLB, libc::MAP_HUGETLB),
        (uapi::MADV_MERGEABLE, libc::MADV_MERGEABLE),
        (uapi::MFD_CLOEXEC, libc::MFD_CLOEXEC.cast_signed()),
        (
            uapi::MFD_ALLOW_SEALING,
            libc::MFD_ALLOW_SEALING.cast_signed(),
        ),
        (uapi::MFD_NOEXEC_SEAL, libc::MFD_NOEXEC_SEAL.cast_signed()),
        (uapi::O_ACCMODE, libc::O_ACCMODE),
        (uapi::O_TRUNC, libc::O_TRUNC),
        (uapi::EPOLL_CTL_ADD, libc::EPOLL_CTL_ADD),
        (uapi::F_GETLK, libc::F_GETLK),
        (uapi::F_SETLK, libc::F_SETLK),
        (uapi::F_SETLKW, libc::F_SETLKW),
        (uapi::F_OFD_GETLK, libc::F_OFD_GETLK),
        (uapi::F_OFD_SETLK, libc::F_OFD_SETLK),
        (uapi::F_OFD_SETLKW, libc::F_OFD_SETLKW),
        (uapi::F_SETOWN, libc::F_SETOWN),
        (uapi::F_SETLEASE, libc::F_SETLEASE),
        (uapi::F_NOTIFY, libc::F_NOTIFY),
        (uapi::F_SETPIPE_SZ, libc::F_SETPIPE_SZ),
        (uapi::POSIX_FADV_DONTNEED, libc::POSIX_FADV_DONTNEED),
        (uapi::RWF_NOWAIT, libc::RWF_NOWAIT),
        (uapi::FUTEX_WAIT, libc::FUTEX_WAIT),
        (uapi::FUTEX_WAKE, libc::FUTEX_WAKE),
        (uapi::FUTEX_REQUEUE, libc::FUTEX_REQUEUE),
        (uapi::FUTEX_CMP_REQUEUE, libc::FUTEX_CMP_REQUEUE),
        (uapi::FUTEX_WAKE_OP, libc::FUTEX_WAKE_OP),
        (uapi::FUTEX_WAIT_BITSET, libc::FUTEX_WAIT_BITSET),
        (uapi::FUTEX_WAKE_BITSET, libc::FUTEX_WAKE_BITSET),
        (uapi::FUTEX_PRIVATE_FLAG, libc::FUTEX_PRIVATE_FLAG),
        (uapi::FUTEX_CLOCK_REALTIME, libc::FUTEX_CLOCK_REALTIME),
        (uapi::PR_GET_PDEATHSIG, libc::PR_GET_PDEATHSIG),
        (uapi::PR_GET_DUMPABLE, libc::PR_GET_DUMPABLE),
        (uapi::PR_SET_NAME, libc::PR_SET_NAME),
        (uapi::PR_GET_NAME, libc::PR_GET_NAME),
        (uapi::PR_GET_SECCOMP, libc::PR_GET_SECCOMP),
        (uapi::PR_CAPBSET_READ, libc::PR_CAPBSET_READ),
        (uapi::PR_SET_TIMERSLACK, libc::PR_SET_TIMERSLACK),
        (uapi::PR_GET_TIMERSLACK, libc::PR_GET_TIMERSLACK),
        (uapi::PR_SET_NO_NEW_PRIVS, libc::PR_SET_NO_NEW_PRIVS),
        (uapi::PR_GET_NO_NEW_PRIVS, libc::PR_GET_NO_NEW_PRIVS),
        (uapi::PR_GET_TID_ADDRESS, libc::PR_GET_TID_ADDRESS),
        (uapi::PR_SET_THP_DISABLE, libc::PR_SET_THP_DISABLE),
        (uapi::PR_GET_THP_DISABLE, libc::PR_GET_THP_DISABLE),
        (uapi::AF_UNIX, libc::AF_UNIX),
        (uapi::AF_INET, libc::AF_INET),
        (uapi::AF_INET6, libc::AF_INET6),
        (uapi::SOCK_DGRAM, libc::SOCK_DGRAM),
        (uapi::MSG_ZEROCOPY, libc::MSG_ZEROCOPY),
        (uapi::MSG_FASTOPEN, libc::MSG_FASTOPEN),
        (uapi::SOCK_STREAM, libc::SOCK_STREAM),
        (uapi::SOCK_SEQPACKET, libc::SOCK_SEQPACKET),
        (uapi::MSG_OOB, libc::MSG_OOB),
        (uapi::SO_ATTACH_FILTER, libc::SO_ATTACH_FILTER),
        (uapi::SO_ATTACH_BPF, libc::SO_ATTACH_BPF),
        (
            uapi::SO_ATTACH_REUSEPORT_CBPF,
            libc::SO_ATTACH_REUSEPORT_CBPF,
        ),
        (
            uapi::SO_ATTACH_REUSEPORT_EBPF,
            libc::SO_ATTACH_REUSEPORT_EBPF,
        ),
    ];
    for (index, (ours, theirs)) in pairs.into_iter().enumerate() {
        assert_eq!(ours.cast_signed(), theirs, "pair {index}");
    }
}

#[test]
fn constants_of_the_egress_process_are_those_of_libc() {
    let pairs = [
        (uapi::PROT_EXEC, libc::PROT_EXEC),
        (uapi::F_GETFD, libc::F_GETFD),
        (uapi::F_SETFD, libc::F_SETFD),
        (uapi::F_GETFL, libc::F_GETFL),
        (uapi::F_SETFL, libc::F_SETFL),
        (uapi::F_DUPFD_CLOEXEC, libc::F_DUPFD_CLOEXEC),
        (uapi::F_GETPIPE_SZ, libc::F_GETPIPE_SZ),
    ];
    for (index, (ours, theirs)) in pairs.into_iter().enumerate() {
        assert_eq!(ours.cast_signed(), theirs, "pair {index}");
    }
}

#[test]
fn options_of_sockets_are_those_of_libc() {
    let pairs = [
        (uapi::SOL_SOCKET, libc::SOL_SOCKET),
        (uapi::SO_REUSEADDR, libc::SO_REUSEADDR),
        (uapi::SO_DONTROUTE, libc::SO_DONTROUTE),
        (uapi::SO_BROADCAST, libc::SO_BROADCAST),
        (uapi::SO_KEEPALIVE, libc::SO_KEEPALIVE),
        (uapi::SO_OOBINLINE, libc::SO_OOBINLINE),
        (uapi::SO_LINGER, libc::SO_LINGER),
        (uapi::SO_REUSEPORT, libc::SO_REUSEPORT),
        (uapi::SO_PASSCRED, libc::SO_PASSCRED),
        (uapi::SO_RCVLOWAT, libc::SO_RCVLOWAT),
        (uapi::SO_RCVTIMEO, libc::SO_RCVTIMEO),
        (uapi::SO_SNDTIMEO, libc::SO_SNDTIMEO),
        (uapi::IPPROTO_IP, libc::IPPROTO_IP),
        (uapi::IPPROTO_TCP, libc::IPPROTO_TCP),
        (uapi::IPPROTO_UDP, libc::IPPROTO_UDP),
        (uapi::IPPROTO_IPV6, libc::IPPROTO_IPV6),
        (uapi::IP_TOS, libc::IP_TOS),
        (uapi::IP_TTL, libc::IP_TTL),
        (uapi::IP_PKTINFO, libc::IP_PKTINFO),
        (uapi::IP_MTU_DISCOVER, libc::IP_MTU_DISCOVER),
        (uapi::IP_RECVERR, libc::IP_RECVERR),
        (uapi::IP_RECVTTL, libc::IP_RECVTTL),
        (uapi::IP_RECVTOS, libc::IP_RECVTOS),
        (uapi::IP_BIND_ADDRESS_NO_PORT, libc::IP_BIND_ADDRESS_NO_PORT),
        (uapi::IP_MULTICAST_TTL, libc::IP_MULTICAST_TTL),
        (uapi::IP_MULTICAST_LOOP, libc::IP_MULTICAST_LOOP),
        (uapi::IPV6_UNICAST_HOPS, libc::IPV6_UNICAST_HOPS),
        (uapi::IPV6_MULTICAST_HOPS, libc::IPV6_MULTICAST_HOPS),
        (uapi::IPV6_MULTICAST_LOOP, libc::IPV6_MULTICAST_LOOP),
        (uapi::IPV6_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER),
        (uapi::IPV6_RECVERR, libc::IPV6_RECVERR),
        (uapi::IPV6_V6ONLY, libc::IPV6_V6ONLY),
        (uapi::IPV6_RECVPKTINFO, libc::IPV6_RECVPKTINFO),
        (uapi::IPV6_RECVHOPLIMIT, libc::IPV6_RECVHOPLIMIT),
        (uapi::IPV6_RECVTCLASS, libc::IPV6_RECVTCLASS),
        (uapi::IPV6_TCLASS, libc::IPV6_TCLASS),
        (uapi::TCP_NODELAY, libc::TCP_NODELAY),
        (uapi::TCP_MAXSEG, libc::TCP_MAXSEG),
        (uapi::TCP_CORK, libc::TCP_CORK),
        (uapi::TCP_KEEPIDLE, libc::TCP_KEEPIDLE),
        (uapi::TCP_KEEPINTVL, libc::TCP_KEEPINTVL),
        (uapi::TCP_KEEPCNT, libc::TCP_KEEPCNT),
        (uapi::TCP_SYNCNT, libc::TCP_SYNCNT),
        (uapi::TCP_LINGER2, libc::TCP_LINGER2),
        (uapi::TCP_DEFER_ACCEPT, libc::TCP_DEFER_ACCEPT),
        (uapi::TCP_WINDOW_CLAMP, libc::TCP_WINDOW_CLAMP),
        (uapi::TCP_QUICKACK, libc::TCP_QUICKACK),
        (uapi::TCP_USER_TIMEOUT, libc::TCP_USER_TIMEOUT),
        (uapi::TCP_NOTSENT_LOWAT, libc::TCP_NOTSENT_LOWAT),
        (uapi::TCP_ZEROCOPY_RECEIVE, libc::TCP_ZEROCOPY_RECEIVE),
    ];
    for (index, (ours, theirs)) in pairs.into_iter().enumerate() {
        assert_eq!(ours.cast_signed(), theirs, "pair {index}");
    }
}

#[test]
fn requests_are_those_of_libc() {
    let requests = [
        (uapi::TCGETS, libc::TCGETS),
        (uapi::TCSETS, libc::TCSETS),
        (uapi::TCSETSW, libc::TCSETSW),
        (uapi::TCSETSF, libc::TCSETSF),
        (uapi::TCSBRK, libc::TCSBRK),
        (uapi::TCXONC, libc::TCXONC),
        (uapi::TCFLSH, libc::TCFLSH),
        (uapi::TIOCSCTTY, libc::TIOCSCTTY),
        (uapi::TIOCGPGRP, libc::TIOCGPGRP),
        (uapi::TIOCSPGRP, libc::TIOCSPGRP),
        (uapi::TIOCOUTQ, libc::TIOCOUTQ),
        (uapi::TIOCGWINSZ, libc::TIOCGWINSZ),
        (uapi::TIOCSWINSZ, libc::TIOCSWINSZ),
        (uapi::TIOCNOTTY, libc::TIOCNOTTY),
        (uapi::TCSBRKP, libc::TCSBRKP),
        (uapi::TIOCGSID, libc::TIOCGSID),
        (uapi::FIONREAD, libc::FIONREAD),
        (uapi::FIONBIO, libc::FIONBIO),
        (uapi::FIOCLEX, libc::FIOCLEX),
        (uapi::FIONCLEX, libc::FIONCLEX),
    ];
    for (ours, theirs) in requests {
        assert_eq!(u64::from(ours), theirs);
    }
}
