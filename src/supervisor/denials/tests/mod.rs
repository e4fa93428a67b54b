//! Tests how claims and counts become denials.

#![allow(clippy::unwrap_used)]

mod paths;

use super::*;

fn claim(operation: &str, target: Option<&str>, errno: Errno) -> Denied {
    Denied {
        operation: operation.to_owned(),
        target: target.map(str::to_owned),
        errno: Some(errno as i32),
        file: Some("a.py".to_owned()),
        line: Some(3),
        count: 1,
        ..Denied::default()
    }
}

fn ended(
    toml: &str,
    claims: Vec<Denied>,
    ending: &Ending,
    refused_forks: Option<u64>,
    exists: &dyn Fn(&Path) -> Option<bool>,
) -> Denials {
    let plan = crate::plan::sample(toml);
    Refused {
        grants: &crate::plan::sample_grants(toml),
        limits: &plan.supervision.limits,
        of_policy: &plan.supervision.limits,
        ending,
        counts: &Counts {
            refused_forks,
            ..Counts::default()
        },
        without_memory: None,
        full: None,
        connections: &[],
        calls: &RefusedCalls::default(),
        claims,
        own: None,
        exists,
    }
    .explained()
}

fn claimed(toml: &str, claims: Vec<Denied>) -> Denials {
    ended(toml, claims, &Ending::Exception, None, &|_| None)
}

fn one(toml: &str, claim: Denied) -> Option<Denial> {
    let Denials { listed, omitted } = claimed(toml, vec![claim]);
    assert_eq!(omitted, 0);
    assert!(listed.len() <= 1, "{listed:?}");
    listed.into_iter().next()
}

#[test]
fn claim_yields_position_layer_and_setting() {
    let denial = one("", claim("access", Some("/srv/x"), Errno::ENOENT)).unwrap();
    let expected = Denial {
        target: Some("/srv/x".to_owned()),
        errno: Some(2),
        layer: Some(Layer::Mounts),
        file: Some("a.py".to_owned()),
        line: Some(3),
        key: Some("filesystem.read".to_owned()),
        set: Some("filesystem.read=/srv/x".to_owned()),
        ..Denial::new("access", Reporter::Guest)
    };
    assert_eq!(denial, expected);
    let set = |toml, claim| one(toml, claim).unwrap().set;
    assert_eq!(
        set("", claim("socket", None, Errno::EPERM)).as_deref(),
        Some("network.mode=loopback")
    );
    assert_eq!(
        set("", claim("connect", Some("a.example:443"), Errno::EPERM)).as_deref(),
        Some("network.allow=a.example")
    );
    let listed = "[imports]\nallow = ['math']";
    assert_eq!(
        set(listed, claim("import", Some("os"), Errno::EPERM)).as_deref(),
        Some("imports.allow=os")
    );
    assert_eq!(
        set("", claim("run", Some("/work/made"), Errno::EACCES)).as_deref(),
        Some("filesystem.work_exec=true")
    );
    // The guest's exception does not name the system call.
    let call = one("", claim("system call", None, Errno::EPERM)).unwrap();
    assert_eq!((call.layer, call.key, call.set), (None, None, None));
    // Refused by the file's permissions.
    let own = one("", claim("access", Some("/work/x"), Errno::EACCES)).unwrap();
    assert_eq!((own.layer, own.key), (None, None));
    // The path is readable, but the guest wanted to write to it.
    let system = one("", claim("access", Some("/usr/x"), Errno::EROFS)).unwrap();
    assert_eq!((system.layer, system.key), (Some(Layer::Mounts), None));
}

#[test]
fn granted_operations_are_not_denials() {
    for (toml, claim) in [
        ("", claim("access", Some("/work/missing"), Errno::ENOENT)),
        ("", claim("run", Some("/usr/bin/missing"), Errno::ENOENT)),
        ("", claim("import", Some("os"), Errno::EPERM)),
        (
            "[network]\nmode = 'loopback'",
            claim("socket", None, Errno::EPERM),
        ),
    ] {
        assert_eq!(one(toml, claim), None);
    }
}

#[test]
fn malformed_claims_are_dropped() {
    let long = format!("/{}", "x".repeat(LONGEST));
    for (operation, target) in [
        ("fork", None),
        ("limit", Some("1 GiB of memory")),
        ("ptrace", None),
        ("\u{1b}[2J", Some("/srv/x")),
        ("access", None),
        ("access", Some("relative")),
        ("access", Some(long.as_str())),
        ("socket", Some("AF_INET")),
        ("connect", None),
        ("connect", Some("no host")),
    ] {
        let shown = one("", claim(operation, target, Errno::ENOENT));
        assert_eq!(shown, None, "{operation} {target:?}");
    }
    let mut elsewhere = claim("socket", None, Errno::EPERM);
    elsewhere.file = Some(long);
    assert_eq!(one("", elsewhere), None);
}

#[test]
fn refused_connections_are_denials_with_their_counts() {
    let seen = |host: &str, port, verdict, reason, count| Connection {
        host: host.to_owned(),
        port,
        verdict,
        reason,
        count,
        ..Connection::default()
    };
    let connections = [
        seen("a.example", None, "refused", Some("host"), 3),
        seen("::1", Some(81), "refused", Some("own-address"), 1),
        seen("b.example", Some(443), "allowed", None, 1),
        seen("c.example", Some(443), "failed", Some("unresolved"), 1),
    ];
    let all = Refused {
        grants: &crate::plan::sample_grants(""),
        limits: &crate::plan::sample("").supervision.limits,
        of_policy: &crate::plan::sample("").supervision.limits,
        ending: &Ending::Ok,
        counts: &Counts::default(),
        without_memory: None,
        full: None,
        connections: &connections,
        calls: &RefusedCalls::default(),
        claims: Vec::new(),
        own: None,
        exists: &|_| None,
    };
    let all = all.explained().listed;
    let [name, own] = all.as_slice() else {
        panic!("{all:?}")
    };
    assert_eq!((name.operation.as_str(), name.count), ("connect", 3));
    assert_eq!(name.reported_by, Reporter::Supervisor);
    assert_eq!(name.target.as_deref(), Some("a.example"));
    assert_eq!(name.set.as_deref(), Some("network.allow=a.example"));
    assert_eq!(own.target.as_deref(), Some("[::1]:81"));
    assert_eq!(
        (own.key.as_deref(), &own.set),
        (Some("network.allow"), &None)
    );
}

#[test]
fn flood_of_claims_is_bounded_and_counted() {
    let of = |number: usize| claim("access", Some(&format!("/srv/{number}")), Errno::ENOENT);
    let mut claims: Vec<Denied> = (0..MAX + 10).map(of).collect();
    claims[MAX].count = u64::MAX;
    let Denials { listed, omitted } = claimed("", claims);
    assert_eq!((listed.len(), omitted), (MAX, u64::MAX));

    let mut same = of(1);
    same.count = 5;
    let mut more = of(2);
    more.operation = "more".to_owned();
    more.count = 7;
    let Denials { listed, omitted } = claimed("", vec![of(1), same, more]);
    assert_eq!((listed.len(), listed[0].count, omitted), (1, 6, 7));
}

#[test]
fn limits_and_refused_forks_name_their_reporter() {
    let hit = |name, by| Ending::Limit(LimitHit { name, by });
    let wall = hit(LimitName::Wall, Mechanism::Deadline);
    let all = ended("", Vec::new(), &wall, Some(3), &|_| None).listed;
    let [wall, fork] = all.as_slice() else {
        panic!("{all:?}")
    };
    assert_eq!(wall.reported_by, Reporter::Supervisor);
    assert_eq!(wall.key.as_deref(), Some("limits.wall"));
    assert!(wall.set.is_some());
    assert_eq!((fork.operation.as_str(), fork.count), ("fork", 3));
    assert_eq!(fork.reported_by, Reporter::Kernel);
    assert_eq!(fork.key.as_deref(), Some("limits.pids"));
    let memory = hit(LimitName::Memory, Mechanism::Cgroup);
    let all = ended("", Vec::new(), &memory, None, &|_| None).listed;
    assert_eq!(all[0].layer, Some(Layer::Cgroup));
    assert_eq!(all[0].reported_by, Reporter::Kernel);
    for (name, reporter) in [
        (LimitName::Cpu, Reporter::Kernel),
        (LimitName::Memory, Reporter::Guest),
        (LimitName::OpenFiles, Reporter::Guest),
    ] {
        let ending = hit(name, Mechanism::Rlimit);
        let all = ended("", Vec::new(), &ending, None, &|_| None).listed;
        assert_eq!(all[0].layer, Some(Layer::Rlimits));
        assert_eq!(all[0].reported_by, reporter);
    }
}

#[test]
fn memory_denial_is_omitted_if_the_ending_names_it() {
    let memory = |ending: Ending, by| {
        Refused {
            grants: &crate::plan::sample_grants(""),
            limits: &crate::plan::sample("").supervision.limits,
            of_policy: &crate::plan::sample("").supervision.limits,
            ending: &ending,
            counts: &Counts {
                oom_kills: 2,
                ..Counts::default()
            },
            without_memory: Some(by),
            full: None,
            connections: &[],
            calls: &RefusedCalls::default(),
            claims: Vec::new(),
            own: None,
            exists: &|_| None,
        }
        .memory()
    };
    let killed = memory(Ending::Exit(0), Reporter::Kernel).unwrap();
    assert_eq!((killed.layer, killed.count), (Some(Layer::Cgroup), 2));
    assert_eq!(killed.key.as_deref(), Some("limits.memory"));
    let claimed = memory(Ending::Exit(1), Reporter::Guest).unwrap();
    assert_eq!((claimed.layer, claimed.count), (Some(Layer::Rlimits), 1));
    assert_eq!(memory(Ending::Exit(0), Reporter::Guest), None);
    let (name, by) = (LimitName::Memory, Mechanism::Cgroup);
    assert!(memory(Ending::Limit(LimitHit { name, by }), Reporter::Kernel).is_none());
}

/// Returns the denials for calls that a filter refused and claims of the guest.
fn called(toml: &str, calls: &[(RefusedCall, u64)], claims: Vec<Denied>) -> Vec<Denial> {
    Refused {
        grants: &crate::plan::sample_grants(toml),
        limits: &crate::plan::sample(toml).supervision.limits,
        of_policy: &crate::plan::sample(toml).supervision.limits,
        ending: &Ending::Exception,
        counts: &Counts::default(),
        without_memory: None,
        full: None,
        connections: &[],
        calls: &calls.iter().copied().collect(),
        claims,
        own: None,
        exists: &|_| None,
    }
    .explained()
    .listed
}

#[test]
fn refused_call_yields_name_count_and_setting() {
    let names = ["execve", "ptrace", "splice"];
    let calls = names.map(|name| (RefusedCall::Named(name), 2));
    let all = called("[syscalls]\ndeny = ['execve']", &calls, Vec::new());
    let keys = [Some("syscalls.deny"), None, Some("syscalls.allow")];
    let sets = [None, None, Some("syscalls.allow=splice")];
    let errnos = [Errno::EPERM, Errno::EPERM, Errno::EINVAL];
    for (number, denial) in all.iter().enumerate() {
        let (key, set) = (keys[number], sets[number]);
        let expected = Denial {
            target: Some(names[number].to_owned()),
            errno: Some(errnos[number] as i32),
            layer: Some(Layer::Seccomp),
            key: key.map(str::to_owned),
            set: set.map(str::to_owned),
            count: 2,
            ..Denial::new("system call", Reporter::Supervisor)
        };
        assert_eq!(*denial, expected);
    }
    assert_eq!(all.len(), 3);
}

#[test]
fn related_calls_share_one_setting() {
    let calls = ["inotify_init1", "semget"].map(|name| (RefusedCall::Named(name), 1));
    let all = called("", &calls, Vec::new());
    let sets: Vec<_> = all.iter().filter_map(|it| it.set.as_deref()).collect();
    let expected = [
        r#"syscalls.allow=["inotify_init", "inotify_init1", "inotify_add_watch", "inotify_rm_watch"]"#,
        r#"syscalls.allow=["semget", "semop", "semtimedop", "semctl"]"#,
    ];
    assert_eq!(sets, expected);
}

#[test]
fn claim_of_no_space_names_the_possible_quotas() {
    let keys = |target, ending: &Ending| {
        let claims = vec![claim("space", target, Errno::ENOSPC)];
        let all = ended("", claims, ending, None, &|_| None).listed;
        all.into_iter().filter_map(|it| it.key).collect::<Vec<_>>()
    };
    let (tmp, work) = ("filesystem.tmp_size", "filesystem.work_size");
    assert_eq!(keys(None, &Ending::Exception), [tmp, work]);
    assert_eq!(keys(Some("/dev/shm/x"), &Ending::Exception), [tmp]);
    assert_eq!(keys(Some("/work/x"), &Ending::Exception), [work]);
    assert!(keys(Some("/srv/x"), &Ending::Exception).is_empty());
    let name = LimitName::TmpInodes;
    let by = Mechanism::Tmpfs;
    let full = Ending::Limit(LimitHit { name, by });
    assert_eq!(keys(None, &full), ["filesystem.tmp_inodes"]);
}

#[test]
fn claim_and_refused_call_merge_into_one_denial() {
    let socket = (RefusedCall::InternetSocket, 4);
    let of_guest = |operation| claim(operation, None, Errno::EPERM);
    let all = called("", &[socket], vec![of_guest("socket")]);
    let [denial] = all.as_slice() else {
        panic!("{all:?}")
    };
    assert_eq!((denial.line, denial.count), (Some(3), 4));
    assert_eq!(denial.reported_by, Reporter::Supervisor);
    assert_eq!(denial.set.as_deref(), Some("network.mode=loopback"));
    // The claim about the connection is more specific than the refused socket call.
    let connection = claim("connect", Some("a.example:443"), Errno::EPERM);
    let all = called("", &[socket], vec![connection]);
    assert_eq!((all.len(), all[0].operation.as_str()), (1, "connect"));
    // An exception does not name its call, but if only one call was refused, it must be that one.
    let ptrace = (RefusedCall::Named("ptrace"), 1);
    let all = called("", &[ptrace], vec![of_guest("system call")]);
    let named = (all[0].target.as_deref(), all[0].line);
    assert_eq!((all.len(), named), (1, (Some("ptrace"), Some(3))));
    let two = [ptrace, (RefusedCall::Named("keyctl"), 1)];
    assert_eq!(called("", &two, vec![of_guest("system call")]).len(), 3);
}
