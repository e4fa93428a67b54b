//! Tests of the effective policy for the values in a file.

use std::time::Duration;

use sandfork::internals::policy::{
    ImportPattern, PolicySettings as _, Presence, ProcVisibility, Start, Stdin, SystemFiles,
    WorkExec,
};
use sandfork::{Level, Policy};

use crate::support::{Files, load};

fn texts<T: ToString>(items: &[T]) -> Vec<String> {
    items.iter().map(ToString::to_string).collect()
}

const EVERY_KEY: &str = r#"
description = "everything said"
[python]
interpreter = "venv/bin/python"
preload = ["numpy", "pandas?"]
path = ["lib"]
project = "app"
fresh = true
[imports]
allow = ["math", "numpy.*"]
[filesystem]
system = "libraries"
proc = false
work_exec = true
read = ["/srv/in"]
write = ["/srv/out"]
work_size = "1MiB"
work_inodes = 101
tmp_size = "2MiB"
tmp_inodes = 102
[network]
mode = "none"
[env]
set = { A = "1" }
pass = ["B"]
[stdio]
stdin = "pass"
[limits]
wall = "1100ms"
cpu = "1200ms"
memory = "103MiB"
pids = 104
open_files = 105
file_size = "106MiB"
output = "107KiB"
cores = 1.08
[session]
idle = "1300ms"
age = "never"
[syscalls]
allow = ["ptrace"]
deny = ["execve"]
[assurance]
require = "full"
"#;

#[test]
fn every_key_reaches_the_effective_policy() {
    let policy = load(EVERY_KEY).unwrap();
    assert_eq!(policy.name(), "tenant.toml");
    assert_eq!(policy.description(), "everything said");
    let python = policy.python();
    assert_eq!(python.interpreter.value, "/home/user/venv/bin/python");
    let preload: Vec<_> = python
        .preload
        .iter()
        .map(|item| (item.value.module(), item.value.presence()))
        .collect();
    assert_eq!(
        preload,
        [
            ("numpy", Presence::Required),
            ("pandas", Presence::WhereInstalled)
        ]
    );
    assert_eq!(python.path[0].value.to_str(), Some("/home/user/lib"));
    let project = python.project.as_ref().map(|project| &project.value);
    assert_eq!(
        project.and_then(|path| path.to_str()),
        Some("/home/user/app")
    );
    assert_eq!(python.start, Start::Cold);
    assert_eq!(texts(&policy.imports().allow), ["math", "numpy.*"]);
    let filesystem = policy.filesystem();
    assert_eq!(filesystem.system, SystemFiles::Libraries);
    assert_eq!(filesystem.proc, ProcVisibility::Absent);
    assert_eq!(filesystem.work_exec.value, WorkExec::Allowed);
    assert_eq!(filesystem.read[0].value.to_str(), Some("/srv/in"));
    assert_eq!(filesystem.write[0].value.to_str(), Some("/srv/out"));
    assert_eq!(policy.env().set.get("A").map(String::as_str), Some("1"));
    assert_eq!(policy.env().pass, ["B"]);
    assert_eq!(*policy.stdin(), Stdin::Pass);
    let limits = policy.limits();
    assert_eq!((limits.work_size(), limits.work_inodes()), (1 << 20, 101));
    assert_eq!((limits.tmp_size(), limits.tmp_inodes()), (2 << 20, 102));
    assert_eq!(
        (limits.wall().as_millis(), limits.cpu().as_millis()),
        (1100, 1200)
    );
    assert_eq!(limits.memory(), 103 << 20);
    assert_eq!((limits.pids(), limits.open_files()), (104, 105));
    assert_eq!(
        (limits.file_size(), limits.output()),
        (106 << 20, 107 << 10)
    );
    assert_eq!(limits.millicores(), 1080);
    assert_eq!(policy.syscalls().allow[0].value, "ptrace");
    assert_eq!(policy.syscalls().deny[0].value, "execve");
    assert_eq!(policy.require(), Level::Full);
    let session = policy.session();
    assert_eq!(session.idle, Some(Duration::from_millis(1300)));
    assert_eq!(session.age, None);
}

#[test]
fn no_import_list_allows_everything_and_an_empty_one_nothing() {
    assert_eq!(
        Policy::default().imports().allow,
        [ImportPattern::Everything]
    );
    let empty = load("imports.allow = []").unwrap();
    assert!(empty.imports().allow.is_empty());
    let everything = load("imports.allow = ['*']").unwrap();
    assert_eq!(everything.imports().allow, [ImportPattern::Everything]);
    assert_eq!(everything.sha256(), Policy::default().sha256());
}

#[test]
fn a_bare_interpreter_is_a_name_and_one_with_a_slash_a_path() {
    let interpreter = |text: &str| {
        let policy = load(&format!("python.interpreter = '{text}'")).unwrap();
        policy.python().interpreter.value.clone()
    };
    assert_eq!(interpreter("python3.12"), "python3.12");
    assert_eq!(interpreter("./venv"), "/home/user/venv");
    assert_eq!(interpreter("/usr/bin/python3"), "/usr/bin/python3");
}

#[test]
fn writable_directory_may_be_inside_a_readable_one() {
    let policy = load("[filesystem]\nread = ['/srv']\nwrite = ['/srv/out']").unwrap();
    assert_eq!(
        policy.filesystem().write[0].value.to_str(),
        Some("/srv/out")
    );
    // A common prefix, but not the same directory.
    assert!(load("[filesystem]\nread = ['/srv/database']\nwrite = ['/srv/data']").is_ok());
}

#[test]
fn last_file_decides_the_source_of_a_variable() {
    let passed = load("env.pass = ['TZ']").unwrap();
    assert_eq!(passed.env().set.get("TZ"), None);
    assert_eq!(passed.env().pass, ["TZ"]);
    let files = Files::new([
        ("a.toml", "extends = 'b.toml'\nenv.set.TOKEN = 'none'"),
        ("b.toml", "env.pass = ['TOKEN', 'USER']"),
    ]);
    let set = Policy::load("a.toml", &[], &files).unwrap();
    assert_eq!(set.env().set.get("TOKEN").map(String::as_str), Some("none"));
    assert_eq!(set.env().pass, ["USER"]);
    let again = Policy::load("a.toml", &["env.pass=TOKEN".parse().unwrap()], &files).unwrap();
    assert_eq!(again.env().set.get("TOKEN"), None);
    assert_eq!(again.env().pass, ["USER", "TOKEN"]);
}

#[test]
fn boundary_limits_are_accepted() {
    for text in [
        "limits.wall = '1ms'",
        "limits.wall = '720h'",
        "limits.memory = '16MiB'",
        "limits.pids = 1",
        "limits.pids = 4194304",
        "limits.open_files = 16",
        "limits.file_size = '1B'",
        "limits.output = '1024TiB'",
        "limits.cores = 0.01",
        "limits.cores = 8192",
        "filesystem.work_size = '4KiB'",
        "filesystem.tmp_inodes = 16",
    ] {
        assert!(load(text).is_ok(), "{text}: {:?}", load(text));
    }
}

#[test]
fn levels_are_ordered_by_strength() {
    assert!(Level::Landlock < Level::Standard);
    assert!(Level::Standard < Level::Full);
}

#[test]
fn a_policy_can_be_shared_between_threads() {
    fn is_shareable<T: Clone + std::fmt::Debug + Send + Sync + 'static>() {}
    is_shareable::<Policy>();
}
