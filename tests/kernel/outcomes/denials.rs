//! Tests of what an outcome reports about refusals.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use sandfork::internals::plan::SandboxPlan as _;
use sandfork::{Denial, Layer, Level, Outcome, Request};

use crate::check::{fine, shown};
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    tests![
        a_refusal_is_explained,
        only_the_caller_learns_what_the_host_has,
        permissions_of_a_file_are_not_blamed_on_a_layer,
        new_file_suggests_its_directory,
        new_file_in_a_hidden_directory_suggests_an_existing_parent,
        guest_directory_hides_the_hosts,
        granted_paths_are_not_reported,
        a_forged_report_is_bounded,
        refused_call_is_reported_even_if_hidden,
        dependent_calls_are_allowed_together,
        quota_is_named_even_if_freed_later,
        a_flood_of_refused_calls_is_answered_at_a_bounded_rate,
    ]
}

fn only(outcome: &Outcome) -> &Denial {
    let [denial] = outcome.denied() else {
        panic!("one denial: {}", shown(outcome))
    };
    denial
}

fn a_refusal_is_explained(world: &World) {
    world.with_shared(standard(), |sandbox| {
        let by = match sandbox.plan().level {
            Level::Landlock => Layer::Landlock,
            _ => Layer::Mounts,
        };
        let outcome = run(sandbox, "x = 1\nopen('/srv/not shown')");
        let denial = only(&outcome);
        assert_eq!(
            (denial.operation.as_str(), denial.target.as_deref()),
            ("access", Some("/srv/not shown"))
        );
        assert_eq!((denial.layer, denial.line), (Some(by), Some(2)));
        assert_eq!(
            denial.set.as_deref(),
            Some("filesystem.read=/srv/not shown")
        );
        assert_eq!(denial.on_host, None);

        let outcome = run(sandbox, "import socket\nsocket.socket()");
        let denial = only(&outcome);
        assert_eq!(denial.operation, "socket", "{}", shown(&outcome));
        assert_eq!((denial.layer, denial.line), (Some(Layer::Seccomp), Some(2)));

        // Libraries wrap the exception of a failed lookup in their own.
        let lookup = "import urllib.request\nurllib.request.urlopen('https://a.example')";
        let address = "import socket\nsocket.create_connection(('1.1.1.1', 443))";
        for (code, host) in [(lookup, "a.example"), (address, "1.1.1.1")] {
            let outcome = run(sandbox, code);
            let denial = only(&outcome);
            assert_eq!(denial.operation, "connect", "{}", shown(&outcome));
            assert_eq!(denial.target, Some(format!("{host}:443")));
            let allowed = sandbox.plan().level > Level::Landlock;
            let set = allowed.then(|| format!("network.allow={host}"));
            assert_eq!((denial.line, &denial.set), (Some(2), &set));
        }
    });
}

// The host has one of the two files. A caller that asks for it learns which; the guest cannot tell.
fn only_the_caller_learns_what_the_host_has(world: &World) {
    let (there, missing) = ("/etc/shadow", "/etc/shadow.of-no-host");
    let code =
        |path| format!("try: open('{path}')\nexcept OSError as e: print(e.errno)\nopen('{path}')");
    world.with_shared(standard(), |sandbox| {
        let ask = |path| run(sandbox, Request::python(code(path)).ask_host());
        let (of_there, of_missing) = (ask(there), ask(missing));
        assert_eq!(only(&of_there).on_host, Some(true));
        assert_eq!(of_missing.denied(), [], "{}", shown(&of_missing));
        let unasked = run(sandbox, code(missing).as_str());
        assert_eq!(only(&unasked).on_host, None);
        // At level `landlock`, a guest sees the host's root, and the kernel's error itself shows which file exists.
        if sandbox.plan().level > Level::Landlock {
            assert_eq!(of_there.stdout(), of_missing.stdout());
        }
    });
}

/// Creates a host directory with a file in it, which this user may read and write.
fn host_directory(parent: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in(parent).unwrap();
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "").unwrap();
    (directory, file)
}

fn permissions_of_a_file_are_not_blamed_on_a_layer(world: &World) {
    let (directory, file) = host_directory("/var/tmp");
    let read = format!("filesystem.read={}", directory.path().display());
    let code = |mode| format!("open('{}', '{mode}')", file.display());
    let sandbox = world.build(standard().set(&read));
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    for mode in ["r", "a"] {
        let outcome = run(&sandbox, code(mode).as_str());
        let denial = only(&outcome);
        let keys = (denial.layer, &denial.key, &denial.set);
        assert_eq!(keys, (None, &None, &None), "{}", shown(&outcome));
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).unwrap();
    let outcome = run(&sandbox, code("a").as_str());
    let set = format!("filesystem.write={}", file.display());
    assert_eq!(only(&outcome).set, Some(set), "{}", shown(&outcome));
}

fn new_file_suggests_its_directory(world: &World) {
    let (directory, _) = host_directory("/var/tmp");
    let inner = directory.path().join("inner");
    fs::create_dir(&inner).unwrap();
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o777)).unwrap();
    let read = format!("filesystem.read={}", directory.path().display());
    let code = format!("open('{}/new', 'w')", inner.display());
    let outcome = run(&world.build(standard().set(&read)), code.as_str());
    let set = format!("filesystem.write={}", inner.display());
    assert_eq!(
        only(&outcome).set.as_ref(),
        Some(&set),
        "{}",
        shown(&outcome)
    );
    let sandbox = world.build(standard().set(&read).set(&set));
    fine(&run(&sandbox, code.as_str()));
}

// Only the caller learns what the host has in a directory that the guest does not see. `/var/tmp` is excluded: it may
// be the guest's own `/tmp`.
fn new_file_in_a_hidden_directory_suggests_an_existing_parent(world: &World) {
    let code = "open('/var/lib/none of this host/new', 'w')";
    world.with_shared(standard(), |sandbox| {
        let made = run(sandbox, Request::python(code).ask_host());
        let denial = only(&made);
        let set = Some("filesystem.write=/var/lib");
        assert_eq!(denial.set.as_deref(), set, "{}", shown(&made));
        assert_eq!(denial.on_host, Some(false));
        let read = Request::python(code.replace(", 'w'", "")).ask_host();
        assert_eq!(run(sandbox, read).denied(), []);
    });
}

// The host's `/tmp` may contain a file that the guest's own `/tmp` lacks. Only a caller that asks for it learns so.
fn guest_directory_hides_the_hosts(world: &World) {
    let (_directory, file) = host_directory("/tmp");
    let missing = file.with_file_name("missing");
    let code = |path: &Path| {
        let path = path.display();
        format!("try: open('{path}')\nexcept OSError as e: print(e.errno)\nopen('{path}')")
    };
    world.with_shared(standard(), |sandbox| {
        if sandbox.plan().level == Level::Landlock {
            return;
        }
        let of_file = run(sandbox, Request::python(code(&file)).ask_host());
        let denial = only(&of_file);
        let set = format!("filesystem.read={}", file.display());
        assert_eq!((denial.on_host, &denial.set), (Some(true), &Some(set)));
        let of_missing = run(sandbox, Request::python(code(&missing)).ask_host());
        assert_eq!(of_missing.denied(), [], "{}", shown(&of_missing));
        assert_eq!(of_file.stdout(), of_missing.stdout());
        let unasked = run(sandbox, code(&file).as_str());
        assert_eq!(unasked.denied(), [], "{}", shown(&unasked));
    });
}

fn granted_paths_are_not_reported(world: &World) {
    world.with_shared(standard(), |sandbox| {
        for code in ["open('missing')", "1 / 0", "import no_such_module"] {
            let outcome = run(sandbox, code);
            assert_eq!(outcome.denied(), [], "{}", shown(&outcome));
        }
        let outcome = run(sandbox, "try: open('/srv/x')\nexcept OSError: pass");
        fine(&outcome);
        assert_eq!(outcome.denied(), [], "{}", shown(&outcome));
    });
}

// A guest that forges the record in its process cannot make the outcome arbitrarily long or false.
fn a_forged_report_is_bounded(world: &World) {
    let forge = "import gc
gc.unfreeze()
found = [d for d in gc.get_objects() if type(d) is dict and type(d.get('CLAIMS')) is dict]
claims = found[0]['CLAIMS']
for n in range(1000):
    claims[n] = {'operation': 'access', 'target': '/srv/%d' % n, 'count': 2 ** 63}
claims[0] = {'operation': 'ptrace', 'count': 1}
claims[1] = {'operation': 'fork', 'count': 1}
claims[2] = {'operation': 'access', 'target': '/srv/\\x1b[2J', 'errno': 2}";
    world.with_shared(standard(), |sandbox| {
        let outcome = run(sandbox, forge);
        fine(&outcome);
        assert_eq!(outcome.denied().len(), 62, "{}", shown(&outcome));
        assert_eq!(outcome.denied_omitted(), u64::MAX);
        for denial in outcome.denied() {
            assert_eq!(denial.operation, "access");
            assert_eq!(denial.reported_by, sandfork::Reporter::Guest);
        }
        assert_eq!(outcome.denied()[0].set, None);
    });
}

// The supervisor reports a refused call even if neither the guest nor its child processes report it.
fn refused_call_is_reported_even_if_hidden(world: &World) {
    let code = "import ctypes, os, socket
libc = ctypes.CDLL(None, use_errno=True)
def refused(call, *arguments, errno=1):
    assert call(*arguments) == -1 and ctypes.get_errno() == errno
refused(libc.unshare, 0x10000000)
refused(libc.unshare, 0x20000000)
child = os.fork()
if not child:
    refused(libc.splice, 0, 0, 0, 0, 0, 0, errno=22)
    os._exit(0)
os.waitpid(child, 0)
for family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
    try: socket.socket(family)
    except OSError: pass";
    world.with_shared(standard().set("syscalls.deny=getpgid"), |sandbox| {
        let quiet = run(sandbox, "import socket, subprocess, threading");
        assert_eq!(quiet.denied(), [], "{}", shown(&quiet));
        let outcome = run(
            sandbox,
            format!("{code}\nrefused(libc.getpgid, 0)").as_str(),
        );
        fine(&outcome);
        let named = |denial: &Denial| denial.target.clone().unwrap_or(denial.operation.clone());
        let seen: Vec<(String, u64, Option<String>)> = outcome
            .denied()
            .iter()
            .inspect(|denial| {
                assert_eq!(denial.reported_by, sandfork::Reporter::Supervisor);
                let is_splice = denial.target.as_deref() == Some("splice");
                let errno = Some(if is_splice { 22 } else { 1 });
                assert_eq!((denial.layer, denial.errno), (Some(Layer::Seccomp), errno));
            })
            .map(|denial| (named(denial), denial.count, denial.key.clone()))
            .collect();
        let allowed = sandbox.plan().level > Level::Landlock;
        let of =
            |name: &str, count, key: Option<&str>| (name.to_owned(), count, key.map(str::to_owned));
        let expected = [
            of("socket", 2, allowed.then_some("network.mode")),
            of("getpgid", 1, Some("syscalls.deny")),
            of("splice", 1, Some("syscalls.allow")),
            of("unshare", 2, None),
        ];
        assert_eq!(seen, expected, "{}", shown(&outcome));
    });
}

// A program that may make only the first of these calls fails at the next one.
fn dependent_calls_are_allowed_together(world: &World) {
    let code = "import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
watcher = libc.inotify_init()
if watcher < 0 or libc.inotify_add_watch(watcher, b'/work', 0x100) < 0:
    raise OSError(ctypes.get_errno(), 'no watch')
open('new', 'w').close()
assert len(os.read(watcher, 100)) > 0";
    let refused = world.with_shared(standard(), |sandbox| {
        let outcome = run(sandbox, code);
        (sandbox.plan().level > Level::Landlock).then(|| only(&outcome).set.clone())
    });
    if let Some(set) = refused {
        fine(&world.run(standard().set(set.expect("a policy may allow it")), code));
    }
}

fn quota_is_named_even_if_freed_later(world: &World) {
    let removed = "import tempfile
with tempfile.TemporaryDirectory() as directory:
    for number in range(3):
        with open(f'{directory}/{number}', 'wb') as file: file.write(bytes(6 << 20))";
    let at_once = "import os
os.posix_fallocate(os.open('/tmp/large', os.O_RDWR | os.O_CREAT), 0, 12 << 20)";
    let by_path =
        "import errno, os\nraise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), '/dev/shm/x')";
    let small = || {
        standard()
            .set("filesystem.tmp_size=8MiB")
            .set("filesystem.work_size=8MiB")
            .set("limits.file_size=16MiB")
    };
    world.with_shared(small(), |sandbox| {
        if sandbox.plan().level == Level::Landlock {
            return;
        }
        let both = ["filesystem.tmp_size=16MiB", "filesystem.work_size=16MiB"];
        for (code, expected) in [
            (removed, &both[..]),
            (at_once, &both),
            (by_path, &both[..1]),
        ] {
            let outcome = run(sandbox, code);
            let sets: Vec<_> = outcome
                .denied()
                .iter()
                .filter_map(|it| it.set.as_deref())
                .collect();
            assert_eq!(sets, expected, "{}", shown(&outcome));
        }
        let larger = run(
            sandbox,
            "import os\nos.truncate(os.open('/tmp/x', 66), 20 << 20)",
        );
        let sets: Vec<_> = larger
            .denied()
            .iter()
            .filter_map(|it| it.set.as_deref())
            .collect();
        assert_eq!(
            sets,
            ["limits.file_size=32MiB", both[0], both[1]],
            "{}",
            shown(&larger)
        );
        let mapped = "import mmap, os
file = os.open('/dev/shm/x', os.O_RDWR | os.O_CREAT)
os.truncate(file, 12 << 20)
mmap.mmap(file, 12 << 20)[:] = bytes(12 << 20)";
        let ended = run(sandbox, mapped);
        assert_eq!(
            only(&ended).set.as_deref(),
            Some(both[0]),
            "{}",
            shown(&ended)
        );
    });
}

// The supervisor answers a burst and then a fixed number of calls per second. More threads get no more.
fn a_flood_of_refused_calls_is_answered_at_a_bounded_rate(world: &World) {
    let code = "import ctypes, threading
libc = ctypes.CDLL(None)
def flood():
    for _ in range(2000): libc.unshare(0x10000000)
threads = [threading.Thread(target=flood) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()";
    world.with_shared(standard(), |sandbox| {
        let outcome = run(sandbox, code);
        fine(&outcome);
        let denial = only(&outcome);
        assert_eq!(denial.count, 6000, "{}", shown(&outcome));
        // A burst of 4,096, then about 1,024 per second.
        assert!(
            outcome.usage().wall.as_secs_f64() > 1.5,
            "{}",
            shown(&outcome)
        );
    });
}
