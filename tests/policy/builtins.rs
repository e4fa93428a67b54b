//! Tests of the built-in policies.

use insta::assert_snapshot;
use sandfork::internals::policy::{
    Limits, PolicySettings as _, Presence, ProcVisibility, SystemFiles, builtin_names,
};
use sandfork::{Level, Policy};

use crate::support::load;

const TEXTS: [(&str, &str); 3] = [
    ("standard", include_str!("../../policies/standard.toml")),
    ("strict", include_str!("../../policies/strict.toml")),
    (
        "data-science",
        include_str!("../../policies/data-science.toml"),
    ),
];

#[test]
fn each_file_is_a_built_in_policy() {
    let names: Vec<_> = builtin_names().collect();
    assert_eq!(names, TEXTS.map(|(name, _)| name));
    for (name, _) in TEXTS {
        let policy = Policy::builtin(name).expect(name);
        assert_eq!(policy.name(), name);
        assert!(!policy.description().is_empty(), "{name}");
    }
    assert_eq!(Policy::builtin("nothing"), None);
    assert_eq!(Policy::default(), Policy::builtin("standard").unwrap());
}

#[test]
fn each_rule_has_its_reason_in_the_file() {
    for (name, text) in TEXTS {
        for paragraph in text.split("\n\n") {
            let mut lines = paragraph.lines().filter(|line| !line.starts_with('['));
            let is_rule = |line: &str| line.contains(" = ") && !line.starts_with('#');
            let is_header = paragraph.contains("description = ");
            let first = lines.next().unwrap_or_default();
            assert!(
                !is_rule(first) || is_header,
                "{name}: no reason above `{first}`"
            );
        }
    }
}

#[test]
fn standard_sets_every_key() {
    assert_snapshot!(Policy::default().to_toml(), @r#"
    description = "Untrusted Python with programs, threads and temporary files, and no network"

    [python]
    interpreter = "python3"
    environment = ""
    packages = []
    preload = []
    path = []
    project = ""
    fresh = false

    [environments]
    create = false
    add = false

    [imports]
    allow = ["*"]

    [filesystem]
    system = "programs"
    proc = true
    work_exec = false
    read = []
    write = []
    work_size = "64MiB"
    work_inodes = 4096
    tmp_size = "64MiB"
    tmp_inodes = 4096

    [network]
    mode = "none"
    allow = []
    proxy = ""
    resolver = ""
    ask = false
    connections = 64
    bytes = "100MiB"

    [env]
    pass = []

    [env.set]
    LANG = "C.UTF-8"
    TZ = "UTC"

    [stdio]
    stdin = "closed"

    [limits]
    wall = "30s"
    cpu = "10s"
    memory = "512MiB"
    pids = 64
    open_files = 256
    file_size = "64MiB"
    output = "1MiB"
    cores = 1.0

    [session]
    idle = "1h"
    age = "24h"
    pause_after = "never"
    snapshots = 8
    snapshot_bytes = "1GiB"

    [syscalls]
    allow = []
    deny = []

    [assurance]
    require = "standard"
    "#);
}

#[test]
fn rendered_policy_can_be_used_as_a_file() {
    for name in builtin_names() {
        let policy = Policy::builtin(name).unwrap();
        let again = load(&policy.to_toml()).expect(name);
        assert_eq!(again.sha256(), policy.sha256(), "{name}");
    }
}

#[test]
fn strict_is_tighter_than_standard() {
    let (strict, standard) = (Policy::builtin("strict").unwrap(), Policy::default());
    assert_eq!(strict.filesystem().system, SystemFiles::Libraries);
    assert_eq!(strict.filesystem().proc, ProcVisibility::Absent);
    let denied: Vec<_> = strict
        .syscalls()
        .deny
        .iter()
        .map(|item| item.value.as_str())
        .collect();
    assert_eq!(denied, ["execve", "execveat"]);
    assert!(strict.limits().work_size() < standard.limits().work_size());
    assert!(strict.limits().tmp_size() < standard.limits().tmp_size());
    let tuple = |limits: &Limits| {
        [
            limits.wall().as_secs(),
            limits.cpu().as_secs(),
            limits.memory(),
            limits.pids(),
            limits.open_files(),
            limits.file_size(),
            limits.output(),
        ]
    };
    for (strict, standard) in tuple(strict.limits())
        .into_iter()
        .zip(tuple(standard.limits()))
    {
        assert!(strict < standard, "{strict} {standard}");
    }
}

#[test]
fn built_in_policies_run_without_a_cgroup_and_show_nothing_of_the_host() {
    for name in builtin_names() {
        let policy = Policy::builtin(name).unwrap();
        assert_eq!(policy.require(), Level::Standard, "{name}");
        assert!(policy.filesystem().read.is_empty(), "{name}");
        assert!(policy.filesystem().write.is_empty(), "{name}");
        assert!(policy.env().pass.is_empty(), "{name}");
        assert!(policy.syscalls().allow.is_empty(), "{name}");
    }
}

#[test]
fn data_science_preloads_what_is_installed() {
    let policy = Policy::builtin("data-science").unwrap();
    let preload: Vec<_> = policy
        .python()
        .preload
        .iter()
        .map(|item| (item.value.module(), item.value.presence()))
        .collect();
    assert_eq!(
        preload,
        [
            ("numpy", Presence::WhereInstalled),
            ("pandas", Presence::WhereInstalled)
        ]
    );
}

#[test]
fn hash_depends_only_on_the_effect() {
    let hash = |text: &str| load(text).unwrap().sha256().to_owned();
    let standard = hash("");
    assert_eq!(standard.len(), 64);
    assert!(
        standard
            .chars()
            .all(|c| c.is_ascii_hexdigit() && !c.is_ascii_uppercase())
    );
    assert_eq!(hash("description = 'another'"), standard);
    assert_eq!(
        hash("limits.pids = 64\nlimits.memory = '524288KiB'"),
        standard
    );
    assert_eq!(hash("env = { set = { LANG = 'C.UTF-8' } }"), standard);
    assert_ne!(hash("limits.wall = '31s'"), standard);
    assert_ne!(hash("syscalls.deny = ['ptrace']"), standard);
    assert_ne!(hash("syscalls.allow = ['ptrace']"), standard);
}
