//! Tests the tables: the names, and the entries that must never be missing.

use std::collections::BTreeSet;

use super::super::{
    Arch, Errno, Grant, Preset, Rule, Surroundings, Verdict, known_syscall, syscall_number,
    syscalls,
};
use super::SURROUNDINGS;

#[test]
fn syscall_table_is_read_completely() {
    let lines = include_str!("../syscalls.tbl").lines();
    let rows: Vec<&str> = lines
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .collect();
    let names: BTreeSet<&str> = rows
        .iter()
        .map(|row| row.split_whitespace().next().unwrap())
        .collect();
    assert_eq!(names.len(), rows.len(), "a name occurs twice");
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

/// A sample of each kind: old calls, new calls, different numbers, and calls that one architecture lacks.
#[test]
fn numbers_match_libc() {
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
fn rules_name_known_calls_and_a_reason() {
    for surroundings in SURROUNDINGS {
        let Preset { guest, jail } = Preset::of(surroundings);
        for (name, rule) in guest.iter().chain(&jail) {
            assert!(known_syscall(name), "{name}");
            assert!(rule.reason.len() > 10, "{name}");
        }
    }
}

#[test]
fn calls_are_unique_within_a_table() {
    for tables in super::super::preset::tables() {
        let mut seen = BTreeSet::new();
        for name in tables.iter().flat_map(Rule::names) {
            assert!(seen.insert(name), "{name}");
        }
    }
}

/// The guest's tables must have a rule for each call that only the set-up may make. A call without a rule would
/// stay available to the guest.
#[test]
fn guest_table_covers_every_setup_call() {
    for surroundings in SURROUNDINGS {
        let Preset { guest, jail } = Preset::of(surroundings);
        for name in jail.keys() {
            assert_ne!(guest[name].verdict, Verdict::Allow, "{name}");
        }
    }
}

#[test]
fn dangerous_calls_are_refused_and_cannot_be_allowed() {
    let dangerous = "ptrace process_vm_readv process_vm_writev kcmp pidfd_getfd bpf \
        perf_event_open userfaultfd add_key request_key keyctl io_uring_setup io_uring_enter \
        io_uring_register open_by_handle_at kexec_load kexec_file_load init_module finit_module \
        delete_module reboot swapon swapoff mount umount2 pivot_root chroot unshare setns \
        mount_setattr move_mount open_tree fsopen fsconfig fsmount fspick \
        quotactl acct sethostname setdomainname seccomp capset settimeofday clock_settime iopl \
        ioperm modify_ldt fanotify_init";
    for surroundings in SURROUNDINGS {
        let guest = Preset::of(surroundings).guest;
        for name in dangerous.split_whitespace() {
            let expected = Verdict::Refuse {
                errno: Errno::Perm,
                grant: Grant::Never,
            };
            assert_eq!(guest[name].verdict, expected, "{name}");
        }
    }
}

#[test]
fn optional_calls_are_refused_by_default() {
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

/// New calls are reviewed one by one. Reviewed so far: Landlock's calls, futexes, fchmodat2 and mseal.
#[test]
fn only_reviewed_new_calls_are_allowed() {
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
