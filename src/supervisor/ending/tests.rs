use super::*;

fn evidence<'a>() -> Evidence<'a> {
    Evidence {
        stop: None,
        exit: Some(exited(0)),
        result: None,
        counts: Counts::default(),
        cpu_limit_us: Some(2_000_000),
        full: None,
        kind: Kind::Cell,
        memory: ProcessMemory::Mapped(0),
        stderr: b"",
    }
}

fn killed(signal: i32, cpu_us: u64) -> Exit {
    Exit {
        status: ExitStatus::Signal(signal),
        cpu_us,
        max_rss_kib: 0,
    }
}

fn exited(code: i32) -> Exit {
    Exit {
        status: ExitStatus::Code(code),
        cpu_us: 0,
        max_rss_kib: 0,
    }
}

fn raised(name: &str, errno: Option<i32>) -> CellResult {
    let error = GuestError {
        name: name.into(),
        errno,
        ..GuestError::default()
    };
    CellResult::new(1, Ended::Exception(error))
}

#[test]
fn forged_result_does_not_override_the_supervisor() {
    let result = CellResult::new(1, Ended::Ok(None));
    let seen = Evidence {
        stop: Some(Stop::limit(LimitName::Wall, Mechanism::Deadline)),
        result: Some(&result),
        ..evidence()
    };
    assert!(matches!(
        decide(&seen),
        Ending::Limit(LimitHit {
            name: LimitName::Wall,
            ..
        })
    ));
    let seen = Evidence {
        exit: Some(killed(libc::SIGSEGV, 0)),
        result: Some(&result),
        ..evidence()
    };
    assert_eq!(decide(&seen), Ending::Signal(libc::SIGSEGV));
}

#[test]
fn full_host_disk_is_not_a_policy_limit() {
    let result = raised("OSError", Some(libc::ENOSPC));
    let found = |full| {
        decide(&Evidence {
            exit: Some(exited(1)),
            result: Some(&result),
            full,
            ..evidence()
        })
    };
    let quota = Ending::Limit(LimitHit {
        name: LimitName::TmpSize,
        by: Mechanism::Tmpfs,
    });
    assert_eq!(found(Some(LimitName::TmpSize)), quota);
    assert_eq!(found(None), Ending::Exception);
}

#[test]
fn kernel_counts_explain_a_sigkill() {
    let by_kill = |cpu_us, oom_kills| {
        let counts = Counts {
            oom_kills,
            ..Counts::default()
        };
        decide(&Evidence {
            exit: Some(killed(libc::SIGKILL, cpu_us)),
            counts,
            ..evidence()
        })
    };
    assert_eq!(by_kill(0, 0), Ending::Signal(libc::SIGKILL));
    assert!(matches!(by_kill(0, 1), Ending::Limit(hit) if hit.by == Mechanism::Cgroup));
    assert!(matches!(by_kill(2_100_000, 0), Ending::Limit(hit) if hit.name == LimitName::Cpu));
}

#[test]
fn sigxcpu_without_the_cpu_time_is_not_the_cpu_limit() {
    let ended = |cpu_us, cpu_limit_us| {
        decide(&Evidence {
            exit: Some(killed(libc::SIGXCPU, cpu_us)),
            cpu_limit_us,
            ..evidence()
        })
    };
    let limit = Ending::Limit(LimitHit {
        name: LimitName::Cpu,
        by: Mechanism::Rlimit,
    });
    assert_eq!(ended(1_990_000, Some(2_000_000)), limit);
    let by_itself = Ending::Signal(libc::SIGXCPU);
    assert_eq!(ended(3_500, Some(2_000_000)), by_itself);
    assert_eq!(ended(3_000_000, None), by_itself);
}

#[test]
fn memory_error_under_an_rlimit_is_the_memory_limit() {
    let result = raised("MemoryError", None);
    let seen = Evidence {
        exit: Some(exited(1)),
        result: Some(&result),
        ..evidence()
    };
    assert_eq!(
        decide(&seen),
        Ending::Limit(LimitHit {
            name: LimitName::Memory,
            by: Mechanism::Rlimit
        })
    );
}

#[test]
fn memory_error_with_enomem_is_the_interpreters_limit() {
    let ended = |errno| {
        let result = raised("MemoryError", errno);
        decide(&Evidence {
            exit: Some(exited(1)),
            result: Some(&result),
            memory: ProcessMemory::Touched(0),
            ..evidence()
        })
    };
    let refused = ended(Some(libc::ENOMEM));
    assert!(matches!(refused, Ending::Limit(hit) if hit.by == Mechanism::Interpreter));
    assert_eq!(ended(None), Ending::Exception);
}

#[test]
fn abort_with_a_memory_message_is_the_memory_limit() {
    let aborted = |memory, stderr| {
        decide(&Evidence {
            exit: Some(killed(libc::SIGABRT, 0)),
            memory,
            stderr,
            ..evidence()
        })
    };
    let words = b"terminate called after throwing an instance of 'std::bad_alloc'";
    let limited = aborted(ProcessMemory::Mapped(0), words);
    assert!(matches!(limited, Ending::Limit(hit) if hit.name == LimitName::Memory));
    let by_itself = Ending::Signal(libc::SIGABRT);
    assert_eq!(
        aborted(ProcessMemory::Mapped(0), b"assertion failed"),
        by_itself
    );
    assert_eq!(aborted(ProcessMemory::Touched(0), words), by_itself);
}

#[test]
fn enomem_at_program_start_is_the_memory_limit() {
    let not_started = |errno| {
        let result = raised("OSError", Some(errno));
        decide(&Evidence {
            exit: Some(exited(127)),
            result: Some(&result),
            kind: Kind::Program,
            ..evidence()
        })
    };
    let limited = not_started(libc::ENOMEM);
    assert!(matches!(limited, Ending::Limit(hit) if hit.name == LimitName::Memory));
    assert_eq!(not_started(libc::ENOENT), Ending::NotStarted(libc::ENOENT));
}

#[test]
fn eagain_is_a_limit_only_if_forks_were_refused() {
    let result = raised("BlockingIOError", Some(libc::EAGAIN));
    let refused = |refused_forks| {
        // Linux before 6.1 does not report the peak number of tasks.
        let counts = Counts {
            refused_forks,
            ..Counts::default()
        };
        decide(&Evidence {
            result: Some(&result),
            counts,
            exit: Some(exited(1)),
            ..evidence()
        })
    };
    let pids = |by| {
        let name = LimitName::Pids;
        Ending::Limit(LimitHit { name, by })
    };
    assert_eq!(refused(Some(0)), Ending::Exception);
    assert_eq!(refused(Some(3)), pids(Mechanism::Cgroup));
    assert_eq!(refused(None), pids(Mechanism::Rlimit));
}

#[test]
fn exit_code_overrides_a_contradicting_result() {
    let result = CellResult::new(1, Ended::Ok(None));
    let seen = Evidence {
        exit: Some(exited(5)),
        result: Some(&result),
        ..evidence()
    };
    assert_eq!(decide(&seen), Ending::Exit(5));
}

#[test]
fn exit_without_a_result_keeps_its_code() {
    let exit = Some(exited(7));
    assert_eq!(decide(&Evidence { exit, ..evidence() }), Ending::Exit(7));
}
