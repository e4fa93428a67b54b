//! Tests a policy's lists of system calls.

use std::collections::BTreeSet;

use super::super::{
    Arch, Errno, Filters, Grant, Preset, SeccompError, Surroundings, Verdict, compile,
    syscall_number,
};
use super::interpreter::{Answer, Call, answer};
use super::{SURROUNDINGS, preset_filters};

const ARCH: Arch = Arch::X86_64;

fn lists(allow: &[&str], deny: &[&str]) -> Result<Filters, SeccompError> {
    compile(ARCH, Surroundings::Namespaces, allow, deny)
}

fn guests(filters: &Filters, name: &str) -> Answer {
    let call = Call::new(ARCH, syscall_number(ARCH, name).unwrap(), [0; 6]);
    answer(filters.zygote.iter().chain(&filters.worker), &call).to_guest()
}

#[test]
fn allow_adds_optional_and_unlisted_calls() {
    let preset = preset_filters(ARCH, Surroundings::Namespaces);
    for (name, before) in [
        ("splice", Answer::Errno(1)),
        ("shmget", Answer::Errno(1)),
        ("io_setup", Answer::Errno(38)),
        ("cachestat", Answer::Errno(1)),
    ] {
        assert_eq!(guests(&preset, name), before, "{name}");
        assert_eq!(
            guests(&lists(&[name], &[]).unwrap(), name),
            Answer::Allow,
            "{name}"
        );
    }
}

#[test]
fn allow_of_an_allowed_call_changes_nothing() {
    assert_eq!(lists(&["read", "execve"], &[]), lists(&[], &[]));
}

#[test]
fn allow_of_a_forbidden_call_is_rejected() {
    for name in [
        "ptrace",
        "bpf",
        "mount",
        "io_uring_setup",
        "unshare",
        "seccomp",
        "clone3",
    ] {
        let error = lists(&[name], &[]).unwrap_err();
        assert_says(&error, name, "cannot be allowed");
    }
    assert_eq!(
        lists(&["ptrace"], &[]).unwrap_err().to_string(),
        "`ptrace` cannot be allowed (reads, writes or controls another process): remove it from `allow`"
    );
}

#[test]
fn allow_of_an_argument_rule_is_rejected() {
    for name in [
        "socket",
        "ioctl",
        "prctl",
        "clone",
        "memfd_create",
        "personality",
        "futex",
    ] {
        let error = lists(&[name], &[]).unwrap_err();
        assert_says(&error, name, "is already allowed");
    }
}

#[test]
fn allow_is_narrower_on_a_shared_host() {
    let shared = Surroundings::SharedHost { landlock_abi: 6 };
    for name in ["shmget", "mq_open", "chmod", "socket"] {
        let error = compile(ARCH, shared, &[name], &[] as &[&str]).unwrap_err();
        assert_says(&error, name, "cannot be allowed");
    }
}

#[test]
fn deny_applies_only_to_the_worker_filter() {
    let filters = lists(&[], &["execve", "openat", "socket"]).unwrap();
    for name in ["execve", "openat", "socket"] {
        assert_eq!(guests(&filters, name), Answer::Errno(1), "{name}");
    }
    assert_eq!(
        filters.zygote,
        preset_filters(ARCH, Surroundings::Namespaces).zygote
    );
}

/// A denied call on which the supervisor would otherwise decide must not be reported: the supervisor might allow it.
#[test]
fn denied_calls_are_reported_unless_the_supervisor_decides_them() {
    let names = [
        "execve",
        "getpid",
        "flock",
        "fcntl",
        "epoll_ctl",
        "sysinfo",
        "socketpair",
    ];
    // A plan may allow these calls without asking, such as epoll_ctl for a worker with a separate uid.
    for allowed in [&[][..], &["flock", "epoll_ctl", "sysinfo"]] {
        let filters = lists(allowed, &names).unwrap();
        for name in names {
            let call = Call::new(ARCH, syscall_number(ARCH, name).unwrap(), [0; 6]);
            let expected = match name {
                "execve" | "getpid" => Answer::Reported,
                _ => Answer::Errno(1),
            };
            let loaded = filters.zygote.iter().chain(&filters.worker);
            assert_eq!(answer(loaded, &call), expected, "{name}");
        }
    }
}

#[test]
fn deny_wins_over_allow() {
    assert_eq!(
        guests(&lists(&["splice"], &["splice"]).unwrap(), "splice"),
        Answer::Errno(1)
    );
}

/// With `EPERM` for clone3, glibc would not fall back to clone.
#[test]
fn deny_of_a_refused_call_keeps_its_answer() {
    let filters = lists(&[], &["clone3", "io_setup", "mount"]).unwrap();
    assert_eq!(filters, preset_filters(ARCH, Surroundings::Namespaces));
    assert_eq!(guests(&filters, "clone3"), Answer::Errno(38));
}

#[test]
fn deny_of_an_essential_call_is_rejected() {
    for name in ["read", "mmap", "futex", "exit_group"] {
        let error = lists(&[], &[name]).unwrap_err();
        assert_says(&error, name, "cannot be denied");
    }
}

#[test]
fn unknown_names_are_rejected_in_both_lists() {
    for error in [lists(&["raed"], &[]), lists(&[], &["raed"])] {
        assert_eq!(
            error.unwrap_err().to_string(),
            "`raed` is not a system call: names are those of syscalls(2), without `sys_`"
        );
    }
}

/// One policy serves both architectures.
#[test]
fn names_of_another_architecture_are_accepted() {
    for surroundings in SURROUNDINGS {
        assert!(compile(Arch::Aarch64, surroundings, &["time"], &["open", "vfork"]).is_ok());
    }
}

#[test]
fn policy_lists_change_every_changeable_rule() {
    for surroundings in SURROUNDINGS {
        for (name, rule) in Preset::of(surroundings).guest {
            let allowed = compile(ARCH, surroundings, &[name], &[] as &[&str]);
            let denied = compile(ARCH, surroundings, &[] as &[&str], &[name]);
            match rule.verdict {
                Verdict::Allow => {
                    assert_eq!(allowed, Ok(preset_filters(ARCH, surroundings)), "{name}");
                    assert_denied(name, denied);
                }
                Verdict::AskIf { checks: [], .. } => {
                    assert_answers(name, &allowed.unwrap(), Answer::Allow);
                    assert_denied(name, denied);
                }
                Verdict::AllowIf { .. } | Verdict::AskIf { .. } => {
                    assert_says(&allowed.unwrap_err(), name, "is already allowed");
                    assert_denied(name, denied);
                }
                Verdict::Refuse { grant, errno } => {
                    if errno == Errno::Nothing {
                        assert_denied(name, denied);
                    } else {
                        assert_eq!(denied, Ok(preset_filters(ARCH, surroundings)), "{name}");
                    }
                    match grant {
                        Grant::ByPolicy => assert_answers(name, &allowed.unwrap(), Answer::Allow),
                        Grant::Never => {
                            assert_says(&allowed.unwrap_err(), name, "cannot be allowed");
                        }
                    }
                }
            }
        }
    }
}

#[test]
fn denied_calls_that_the_supervisor_decides_are_not_reported() {
    let asked: BTreeSet<&str> = SURROUNDINGS
        .into_iter()
        .flat_map(|surroundings| Preset::of(surroundings).guest)
        .filter(|(_, rule)| matches!(rule.verdict, Verdict::AskIf { .. }))
        .map(|(name, _)| name)
        .collect();
    assert!(asked.contains("kill") && asked.contains("flock"));
    for surroundings in SURROUNDINGS {
        for name in &asked {
            let denied = compile(ARCH, surroundings, &[] as &[&str], &[name]);
            let Ok(filters) = denied else { continue };
            let call = Call::new(ARCH, syscall_number(ARCH, name).unwrap(), [1; 6]);
            let answered = answer(filters.zygote.iter().chain(&filters.worker), &call);
            assert_eq!(answered, Answer::Errno(1), "{name} in {surroundings:?}");
        }
    }
}

fn assert_denied(name: &str, denied: Result<Filters, SeccompError>) {
    match denied {
        Ok(filters) => assert_answers(name, &filters, Answer::Errno(1)),
        Err(error) => assert_says(&error, name, "cannot be denied"),
    }
}

#[track_caller]
fn assert_says(error: &SeccompError, name: &str, problem: &str) {
    let (error, start) = (error.to_string(), format!("`{name}` {problem}"));
    assert!(error.starts_with(&start), "{error}");
}

/// Asserts the same answer for all arguments. Skips a call that the architecture lacks.
fn assert_answers(name: &str, filters: &Filters, expected: Answer) {
    let Some(number) = syscall_number(ARCH, name) else {
        return;
    };
    for arguments in [[0; 6], [u64::MAX; 6]] {
        let call = Call::new(ARCH, number, arguments);
        let loaded = filters.zygote.iter().chain(&filters.worker);
        assert_eq!(answer(loaded, &call).to_guest(), expected, "{name}");
    }
}
