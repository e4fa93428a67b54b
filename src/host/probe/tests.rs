//! Runs the probe on the machine that runs the tests.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::*;
use crate::host::{ChainStep, Errno, Kept, KeptKind, Refusal, RefusalCause};

fn me() -> HostUser {
    HostUser::probe().unwrap()
}

/// Marks a test that runs again in a separate process.
const SEPARATE: &str = "SANDFORK_TEST_APART";

fn in_own_process() -> bool {
    std::env::var_os(SEPARATE).is_some()
}

/// Returns a command that runs one test of this binary in a separate process, through a launcher if one is given.
fn separate_process(launcher: &[&str], test: &str) -> Command {
    let this = std::env::current_exe().unwrap();
    let mut command = match launcher {
        [] => Command::new(this),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(this);
            command
        }
    };
    command.args(["--exact", test]).env(SEPARATE, "1");
    command
}

/// Returns a command that runs one test of this binary as an ordinary user.
fn by_ordinary_user(test: &str) -> Command {
    let launcher = [
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
    ];
    separate_process(if me().is_root() { &launcher } else { &[] }, test)
}

fn passes(test: &mut Command) {
    let output = test.output().expect("setpriv or unshare of util-linux");
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{output:?}"
    );
}

const CHAIN: &str = "host::probe::tests::chain_succeeds_and_leaks_no_descriptors";

#[test]
fn chain_succeeds_and_leaks_no_descriptors() {
    if !in_own_process() {
        return passes(&mut separate_process(&[], CHAIN));
    }
    let fds = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    NamespaceSupport::probe(me()).unwrap();
    let before = fds();
    let first = NamespaceSupport::probe(me());
    let second = NamespaceSupport::probe(me());
    assert_eq!(first, second);
    assert_eq!(fds(), before, "descriptors were left open");
}

#[test]
fn chain_succeeds_for_an_ordinary_user() {
    passes(&mut by_ordinary_user(CHAIN));
}

/// Runs a test again in a user namespace that `script` prepares first.
///
/// Limits under `/proc/sys/user` apply to the user namespace in which they are written.
fn confined(script: &str, test: &str) {
    let launcher = ["unshare", "--user", "--map-root-user", "sh", "-c", script];
    passes(&mut separate_process(&launcher, test));
}

#[test]
fn exhaustion_is_an_error_not_a_refusal() {
    if in_own_process() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NPROC).unwrap();
        setrlimit(Resource::RLIMIT_NPROC, 1, hard).unwrap();
        let error = NamespaceSupport::probe(me()).unwrap_err().to_string();
        for words in ["could not start a child process", "EAGAIN", "ulimit -u"] {
            assert!(error.contains(words), "{error}");
        }
        return;
    }
    let test = "host::probe::tests::exhaustion_is_an_error_not_a_refusal";
    passes(&mut by_ordinary_user(test));
}

/// An unreadable uid map is an error. If it counted as "may not map", all workers of root would share one uid.
#[test]
fn unreadable_uid_map_is_an_error() {
    if in_own_process() {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
        let error = HostUser::probe().unwrap_err().to_string();
        for words in ["could not read /proc/self/uid_map", "EMFILE", "ulimit -n"] {
            assert!(error.contains(words), "{error}");
        }
        return;
    }
    let test = "host::probe::tests::unreadable_uid_map_is_an_error";
    passes(&mut separate_process(&[], test));
}

#[test]
fn missing_procfs_is_an_error() {
    if in_own_process() {
        assert_eq!(HostUser::probe(), Err(no_proc()));
        return;
    }
    let test = "host::probe::tests::missing_procfs_is_an_error";
    let hidden =
        "unshare --mount sh -c 'mount -t tmpfs none /proc && exec \"$0\" \"$@\"' \"$0\" \"$@\"";
    confined(hidden, test);
}

#[test]
fn refused_step_is_named() {
    if in_own_process() {
        let refusal = NamespaceSupport::Refused(Refusal {
            step: ChainStep::Unshare,
            errno: Errno(libc::ENOSPC),
            cause: RefusalCause::NoneLeft("user"),
        });
        assert_eq!(NamespaceSupport::probe(me()), Ok(refusal));
        return;
    }
    let one_more = "echo 1 > /proc/sys/user/max_user_namespaces && \
                    exec unshare --user --map-user=1000 \"$0\" \"$@\"";
    confined(one_more, "host::probe::tests::refused_step_is_named");
}

#[test]
fn missing_device_is_named() {
    if in_own_process() {
        let NamespaceSupport::Refused(refusal) = NamespaceSupport::probe(me()).unwrap() else {
            panic!("nothing was missed");
        };
        let RefusalCause::NoDevice(device) = refusal.cause else {
            panic!("{refusal:?}");
        };
        assert_eq!(device.path, "/dev/null");
        return;
    }
    let test = "host::probe::tests::missing_device_is_named";
    let hidden =
        "unshare --mount sh -c 'mount -t tmpfs none /dev && exec \"$0\" \"$@\"' \"$0\" \"$@\"";
    confined(hidden, test);
}

#[test]
fn root_of_a_user_namespace_can_make_sandboxes() {
    if in_own_process() {
        assert_eq!(me().drop_to, None);
        assert_eq!(
            NamespaceSupport::probe(me()),
            Ok(NamespaceSupport::Available)
        );
        return;
    }
    let test = "host::probe::tests::root_of_a_user_namespace_can_make_sandboxes";
    confined("exec \"$0\" \"$@\"", test);
}

#[test]
fn chain_is_sound_while_other_threads_allocate() {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let _ = std::hint::black_box(vec![0_u8; 4096]);
                }
            });
        }
        let alone = NamespaceSupport::probe(me());
        for _ in 0..20 {
            assert_eq!(NamespaceSupport::probe(me()), alone);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn probe_covers_the_needs() {
    let needs = Needs {
        paths: ["/usr", "/nowhere"].iter().map(PathBuf::from).collect(),
        variables: BTreeSet::from(["PATH".to_owned(), "SANDFORK_NOT_SET".to_owned()]),
        ..Needs::default()
    };
    let host = probe("python3", &needs).unwrap();
    assert!(matches!(
        host.paths[&PathBuf::from("/usr")],
        PathFact::Found { .. }
    ));
    assert!(matches!(
        host.paths[&PathBuf::from("/nowhere")],
        PathFact::Unreachable(_)
    ));
    assert_eq!(host.caller_env.keys().collect::<Vec<_>>(), ["PATH"]);
}

#[test]
fn paths_that_later_starts_trust_are_found() {
    let without = probe("python3", &Needs::default()).unwrap();
    assert_eq!(without.kept, []);
    let kept = Some(KeptNeeds {
        policies: vec!["/srv/tenant.toml".into()],
        interpreter: Some("python3".to_owned()),
        ..KeptNeeds::default()
    });
    let needs = Needs {
        kept,
        ..Needs::default()
    };
    let host = probe("python3", &needs).unwrap();
    let has = |what, path: &Path| {
        let mut entries = host.kept.iter().filter(|kept| kept.what == what);
        entries.any(|kept| kept.route.entries.iter().any(|entry| entry == path))
    };
    let interpreter = &host.interpreter;
    assert!(has(
        KeptKind::Interpreter,
        &interpreter.binary.canonicalize().unwrap()
    ));
    assert!(has(
        KeptKind::Libraries,
        &interpreter.stdlib.canonicalize().unwrap()
    ));
    assert!(has(KeptKind::Program, &std::env::current_exe().unwrap()));
    let is_policy = |kept: &Kept| kept.what == KeptKind::Policy;
    let policy = host.kept.iter().find(|kept| is_policy(kept)).unwrap();
    assert_eq!(policy.route.end, Path::new("/srv/tenant.toml"));
    let on_path = std::env::var_os("PATH").unwrap();
    for directory in std::env::split_paths(&on_path).filter(|path| path.is_dir()) {
        for name in ["python3", "uv"] {
            let place = directory.canonicalize().unwrap().join(name);
            assert!(has(KeptKind::OnPath, &place), "{}", place.display());
        }
    }
}

#[test]
fn variable_that_is_not_utf8_is_rejected() {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    let odd = (OsString::from("ODD"), OsString::from_vec(vec![0xff]));
    let environment: CallerEnvironment = [odd].into_iter().collect();
    let passed = |name: &str| caller_env(&BTreeSet::from([name.to_owned()]), &environment);
    let refused = passed("ODD").unwrap_err().to_string();
    assert!(refused.contains("ODD"), "{refused}");
    assert_eq!(passed("MISSING").unwrap(), BTreeMap::new());
}
