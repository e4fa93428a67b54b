//! Compares a guest's interpreter with an ordinary `python3` of the same environment: every difference has a reason.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use sandfork::Request;
use serde_json::{Map, Value};

use crate::check::fine;
use crate::need::Need;
use crate::recipe::standard;
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        differs_only_for_a_reason,
        bytecode_is_not_written_if_the_environment_says_so,
        helper_processes_find_what_their_parent_finds,
    ];
    tests.push(
        Test::new(
            "ordinary::differs_only_for_a_reason_in_every_version",
            in_every_version,
        )
        .needs(Need::Packages),
    );
    tests
}

const SNAPSHOT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/tests/kernel/ordinary/snapshot.py"
);

/// The permitted differences and their reasons.
const DIFFERENT: [(&str, &str); 9] = [
    ("cwd", "a guest starts in its work directory"),
    (
        "sys.path",
        "code that writes a module in the work directory expects to import it",
    ),
    (
        "sys.meta_path",
        "asyncio would listen on no address, without an error, where no internet socket can be made",
    ),
    (
        "sys.stdout",
        "line-buffered, so that lines printed before a kill are not lost",
    ),
    (
        "site.user",
        "`site` runs in the zygote, where no guest's home is; programs that the guest starts have it",
    ),
    ("limits", "the policy's"),
    (
        "gc.frozen",
        "what the zygote has loaded lives as long as a worker",
    ),
    ("environ", "the control has the policy's, but its own PATH"),
    ("command", "the kernel shows how the zygote was started"),
];

fn differs_only_for_a_reason(world: &World) {
    compare(world, &world.program());
}

fn in_every_version(world: &World) {
    for python in &world.pythons {
        compare(world, &python.executable);
    }
}

/// Starts the control with the signal dispositions and the umask of a login shell's commands, instead of those of this
/// test.
const CONTROL: &str = "
import os, signal, sys
os.umask(0o22)
for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP, signal.SIGPIPE, signal.SIGXFSZ}:
    signal.signal(number, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
";

fn compare(world: &World, python: &Path) {
    let code = std::fs::read_to_string(SNAPSHOT).expect("the script");
    let request = Request::python(code).filename(SNAPSHOT);
    let outcome = run(
        &world.build(
            standard()
                .python(python)
                .set(format!("filesystem.read={SNAPSHOT}")),
        ),
        request,
    );
    fine(&outcome);
    let inside = snapshot(&outcome.stdout());
    let outside = Command::new(&world.host.interpreter.executable)
        .args(["-c", CONTROL])
        .arg(python)
        .arg(SNAPSHOT)
        .env_clear()
        .envs([
            ("HOME", "/work"),
            ("LANG", "C.UTF-8"),
            ("TMPDIR", "/tmp"),
            ("TZ", "UTC"),
        ])
        .stdin(Stdio::null())
        .output()
        .expect("the interpreter runs");
    let outside = snapshot(&String::from_utf8_lossy(&outside.stdout));
    assert!(outside.len() > 50, "{outside:?}");
    let differ: Vec<_> = outside
        .iter()
        .filter(|(name, value)| inside.get(*name) != Some(value))
        .filter(|(name, _)| !DIFFERENT.iter().any(|(known, _)| known == name))
        .map(|(name, value)| (name, value, inside.get(name)))
        .collect();
    assert!(differ.is_empty(), "{}: {differ:#?}", python.display());
}

fn snapshot(printed: &str) -> Map<String, Value> {
    serde_json::from_str(printed).unwrap_or_else(|error| panic!("{error}: {printed}"))
}

fn bytecode_is_not_written_if_the_environment_says_so(world: &World) {
    let recipe = standard().set("env.set.PYTHONDONTWRITEBYTECODE=1");
    let code = "import sys\nprint(sys.flags.dont_write_bytecode, sys.dont_write_bytecode)";
    assert_eq!(world.run(recipe, code).stdout(), "1 True\n");
}

/// A script that uses a package that only `site` finds, in processes that the standard library starts.
const HELPERS: &str = "
import multiprocessing, subprocess, sys
from concurrent.futures import ProcessPoolExecutor
def site_packages(_):
    return [path for path in sys.path if path.endswith('site-packages') and '.local' not in path]
if __name__ == '__main__':
    expected = site_packages(0)
    assert expected, sys.path
    for method in ('spawn', 'forkserver'):
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
            assert list(pool.map(site_packages, [0])) == [expected]
    code = 'import sys; print([p for p in sys.path if p.endswith(\"site-packages\")])'
    flags = subprocess._args_from_interpreter_flags()
    said = subprocess.check_output([sys.executable, *flags, '-c', code], text=True)
    assert said.strip() == repr(expected), said
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', 'env'], check=True)
    print(flags)
";

fn helper_processes_find_what_their_parent_finds(world: &World) {
    let host = tempfile::tempdir().expect("a temporary directory");
    let made = Command::new(world.program())
        .args(["-m", "venv", "--without-pip"])
        .arg(host.path())
        .status();
    assert!(made.expect("the interpreter runs").success());
    let script = host.path().join("script.py");
    std::fs::write(&script, HELPERS).expect("the test owns the file");
    let everyone = std::fs::Permissions::from_mode(0o755);
    for path in [host.path(), &script] {
        std::fs::set_permissions(path, everyone.clone()).expect("the test owns the file");
    }
    let request = Request::python(HELPERS).filename(script.display().to_string());
    let recipe = standard()
        .python(host.path())
        .set(format!("filesystem.read={}", script.display()))
        .patient();
    let outcome = run(&world.build(recipe), request);
    fine(&outcome);
    assert_eq!(outcome.stdout(), "[]\n");
}
