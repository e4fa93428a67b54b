use super::*;

fn evidence<'a>() -> Evidence<'a> {
    Evidence {
        stop: None,
        exit: Some(exited(0)),
        result: None,
        counts: Counts::default(),
        cpu_limit_us: 2_000_000,
        no_room: NoRoom::Quota(None),
        kind: Kind::Cell,
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
fn a_lie_does_not_outrank_the_supervisor() {
    let result = CellResult::new(1, Ended::Ok(None));
    let seen = Evidence {
        stop: Some(Stop::deadline()),
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
fn a_full_disk_of_the_host_is_no_limit_of_the_policy() {
    let result = raised("OSError", Some(libc::ENOSPC));
    let found = |no_room| {
        decide(&Evidence {
            exit: Some(exited(1)),
            result: Some(&result),
            no_room,
            ..evidence()
        })
    };
    let quota = |name| {
        Ending::Limit(LimitHit {
            name,
            by: Mechanism::Tmpfs,
        })
    };
    let tmp = NoRoom::Quota(Some(LimitName::TmpSize));
    assert_eq!(found(tmp), quota(LimitName::TmpSize));
    assert_eq!(found(NoRoom::Quota(None)), quota(LimitName::WorkSize));
    assert_eq!(found(NoRoom::Host), Ending::Exception);
}

#[test]
fn a_kill_is_told_apart_by_what_the_kernel_counted() {
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
fn a_soft_memory_error_is_not_an_oom_kill() {
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
fn try_again_is_a_limit_only_when_forks_were_refused() {
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
fn an_exit_code_that_contradicts_the_result_wins() {
    let result = CellResult::new(1, Ended::Ok(None));
    let seen = Evidence {
        exit: Some(exited(5)),
        result: Some(&result),
        ..evidence()
    };
    assert_eq!(decide(&seen), Ending::Exit(5));
}

#[test]
fn an_exit_without_a_word_keeps_its_code() {
    let exit = Some(exited(7));
    assert_eq!(decide(&Evidence { exit, ..evidence() }), Ending::Exit(7));
}
