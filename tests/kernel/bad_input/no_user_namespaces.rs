//! Tests on a host that forbids user namespaces: the test creates a user namespace in which
//! `max_user_namespaces` is 0.

use std::fs;
use std::io::Write;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::{getegid, geteuid};
use sandfork::internals::host::NamespaceSupport;
use sandfork::internals::plan::SandboxPlan as _;
use sandfork::{ErrorKind, Layer, Level, Sandbox, Status};

use super::assert_reported;
use crate::apart;
use crate::check::{ended, fine, shown};
use crate::recipe::{standard, strict};
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![no_user_namespaces]
}

fn no_user_namespaces(_: &World) {
    apart::finishes("no-user-namespaces");
}

pub fn part() {
    allow_no_user_namespaces();
    let world = World::probe().expect("the host can be probed");
    assert!(matches!(
        world.host.machine.namespaces,
        NamespaceSupport::Refused(_)
    ));
    for recipe in [
        standard(),
        strict(),
        standard().set("assurance.require=full"),
    ] {
        let policy = recipe.python("/usr/bin/python3").policy();
        let error = Sandbox::builder()
            .policy(policy)
            .build()
            .expect_err("it has no namespaces");
        let expected = ["layer `namespaces`", "max_user_namespaces", "landlock"];
        assert_reported(&error, ErrorKind::Host, &expected);
    }
    // A lower level requires a policy that allows it, and the outcome reports it.
    let sandbox = world.build(
        standard()
            .python("/usr/bin/python3")
            .set("assurance.require=landlock"),
    );
    assert_eq!(sandbox.plan().level, Level::Landlock);
    let outcome = run(&sandbox, "import os\nprint(os.getuid())");
    fine(&outcome);
    assert_eq!(outcome.enforced().level, Level::Landlock);
    for (layer, holds) in [
        (Layer::Namespaces, false),
        (Layer::Mounts, false),
        (Layer::Landlock, true),
        (Layer::Seccomp, true),
        (Layer::Capabilities, true),
        (Layer::Rlimits, true),
    ] {
        assert_eq!(
            outcome.enforced().layers.contains(&layer),
            holds,
            "{}",
            shown(&outcome)
        );
    }
    assert_ne!(outcome.stdout(), "0\n");
    for code in [
        "open('/etc/passwd')",
        "open('/var/tmp/written', 'w')",
        "import os; os.kill(1, 0)",
    ] {
        let outcome = run(&sandbox, code);
        ended(&outcome, Status::Exception);
        let name = outcome.error().map(|error| error.name.as_str());
        assert_eq!(name, Some("PermissionError"), "{}", shown(&outcome));
    }
}

/// Enters such a user namespace without changing ids. Root maps all ids, so that it can still become another user; only
/// a process outside the namespace may write that map.
fn allow_no_user_namespaces() {
    let (uid, gid) = (geteuid(), getegid());
    let everybody =
        "read go && for map in uid gid; do echo 0 0 4294967295 >/proc/$PPID/${map}_map; done";
    let mut outside = Command::new("sh");
    let mut outside = outside
        .args(["-c", everybody])
        .stdin(Stdio::piped())
        .spawn()
        .expect("sh");
    // With a mount namespace, because root could change mounts on an ordinary host too.
    unshare(CloneFlags::CLONE_NEWUSER | CloneFlags::CLONE_NEWNS)
        .expect("this host allows user namespaces");
    if uid.is_root() {
        writeln!(outside.stdin.take().expect("the stream is piped"))
            .expect("the program reads its stdin");
    } else {
        write("/proc/self/setgroups", "deny");
        write("/proc/self/uid_map", &format!("{uid} {uid} 1"));
        write("/proc/self/gid_map", &format!("{gid} {gid} 1"));
    }
    drop(outside.stdin.take());
    outside.wait().expect("the child has not been reaped");
    write("/proc/sys/user/max_user_namespaces", "0");
}

fn write(file: &str, text: &str) {
    fs::write(file, text).unwrap_or_else(|error| panic!("{file}: {error}"));
}
