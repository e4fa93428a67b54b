//! Tests of environments and host directories that policies show: read-only, importable and preloadable
//! wherever they are. Most are below /tmp, which is also a directory of the session's own.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sandfork::Layer;
use tempfile::TempDir;

use crate::check::fine;
use crate::need::Need;
use crate::recipe::{Recipe, standard, strict};
use crate::test::{Test, tests};
use crate::world::{World, run};

pub fn tests() -> Vec<Test> {
    let mut tests = tests![
        an_environment_by_its_directory,
        an_environment_by_its_interpreter,
        an_environment_without_programs,
        an_environment_of_another_environment,
        shown_trees_are_unchanged,
        a_directory_of_modules,
        data_and_a_results_directory,
        a_session_keeps_its_own_quota,
        runs_do_not_share_directories,
    ];
    tests.push(
        Test::new(
            "packages::an_environment_of_every_version",
            of_every_version,
        )
        .needs(Need::Packages),
    );
    tests
}

/// Creates a host directory in /tmp.
fn directory() -> TempDir {
    let made = tempfile::Builder::new()
        .prefix("sandfork test ")
        .tempdir_in("/tmp");
    let directory = made.expect("the directory is created");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))
        .expect("the test owns the file");
    directory
}

/// Creates a virtual environment that contains one package, `probed`.
fn environment(python: &Path, at: &Path) -> PathBuf {
    let venv = at.join("env");
    let made = Command::new(python)
        .args(["-m", "venv", "--without-pip"])
        .arg(&venv)
        .output()
        .expect("the interpreter runs");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    let libraries = venv.join("lib");
    let version = fs::read_dir(&libraries)
        .expect("the environment has libraries")
        .next()
        .expect("of its version")
        .expect("the directory can be read");
    let package = version.path().join("site-packages/probed");
    fs::create_dir(&package).expect("the test owns the file");
    fs::write(
        package.join("__init__.py"),
        "import os\npid = os.getpid()\n",
    )
    .expect("a module");
    fs::write(package.join("data"), "data").expect("a file");
    open_to_all(&package);
    open_to_all(&package.join("data"));
    venv
}

/// Makes a directory world-writable, so that only the sandbox prevents a write.
fn open_to_all(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("the test owns the file");
}

/// Uses a package in every way, and tries to modify it.
const USES: &str = "
import errno, os, subprocess, sys
import probed
place = os.path.dirname(probed.__file__)
assert open(os.path.join(place, 'data')).read() == 'data'
def refused(act, *arguments):
    try:
        act(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
said = [
    refused(open, os.path.join(place, 'data'), 'a'),
    refused(open, os.path.join(place, 'new'), 'w'),
    refused(os.unlink, os.path.join(place, 'data')),
    refused(os.rename, place, place + '2'),
    refused(os.rmdir, sys.prefix),
    refused(os.rename, sys.prefix, '/tmp/env'),
]
assert said == ['EROFS'] * 4 + ['EBUSY'] * 2, said
open('/tmp/own', 'w').write('own')
open('/work/own', 'w').write('own')
";

/// Uses the package from a subprocess of the same interpreter.
const RUNS: &str = "
code = 'import probed, sys; print(sys.prefix)'
said = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
assert said.stdout.strip() == sys.prefix, said
print(sys.prefix, probed.pid == os.getpid())
";

fn an_environment_by_its_directory(world: &World) {
    let host = directory();
    let venv = environment(&world.host.interpreter.executable, host.path());
    let outcome = world.run(standard().python(&venv), &format!("{USES}{RUNS}"));
    fine(&outcome);
    assert_eq!(outcome.stdout(), format!("{} True\n", venv.display()));
    assert!(outcome.enforced().layers.contains(&Layer::Mounts));
    // The zygote has imported the package, once.
    let preloaded = standard().python(&venv).set("python.preload=probed");
    let outcome = world.run(preloaded, &format!("{USES}{RUNS}"));
    fine(&outcome);
    assert_eq!(outcome.stdout(), format!("{} False\n", venv.display()));
    assert!(!host.path().join("own").exists() && !Path::new("/tmp/own").exists());
}

fn an_environment_by_its_interpreter(world: &World) {
    let host = directory();
    let venv = environment(&world.host.interpreter.executable, host.path());
    for python in ["bin/python", "bin/python3"] {
        let recipe = standard().python(venv.join(python));
        let outcome = world.run(recipe, &format!("{USES}{RUNS}"));
        fine(&outcome);
        assert_eq!(outcome.stdout(), format!("{} True\n", venv.display()));
    }
}

fn an_environment_without_programs(world: &World) {
    let host = directory();
    let venv = environment(&world.host.interpreter.executable, host.path());
    let recipe = strict().python(&venv).set("python.preload=probed");
    let code = "import probed, sys, os\n\
                print(sys.prefix, sys.executable, os.path.exists(sys.executable))";
    let outcome = world.run(recipe, code);
    fine(&outcome);
    let venv = venv.display();
    assert_eq!(outcome.stdout(), format!("{venv} {venv}/bin/python True\n"));
}

// The interpreter is a symlink to a symlink.
fn an_environment_of_another_environment(world: &World) {
    let (first, second) = (directory(), directory());
    let base = environment(&world.host.interpreter.executable, first.path());
    let venv = environment(&base.join("bin/python"), second.path());
    let outcome = world.run(standard().python(&venv), &format!("{USES}{RUNS}"));
    fine(&outcome);
    assert_eq!(outcome.stdout(), format!("{} True\n", venv.display()));
}

fn of_every_version(world: &World) {
    for python in &world.pythons {
        let host = directory();
        let venv = environment(&python.executable, host.path());
        let recipe = standard().python(&venv).set("python.preload=probed");
        let outcome = world.run(recipe, &format!("{USES}{RUNS}"));
        fine(&outcome);
    }
}

// Parent directories are the guest's own: its changes to them disappear after the run.
fn shown_trees_are_unchanged(world: &World) {
    let host = directory();
    let venv = environment(&world.host.interpreter.executable, host.path());
    let sandbox = world.build(standard().python(&venv));
    let outcome = run(
        &sandbox,
        &*format!(
            "{USES}\nabove = os.path.dirname(sys.prefix)\n\
             os.rename(above, above + '2')\n\
             os.makedirs(sys.prefix)\n\
             open(os.path.join(above, 'fake'), 'w').close()"
        ),
    );
    fine(&outcome);
    let outcome = run(
        &sandbox,
        "import os, probed, sys\nprint(os.listdir(os.path.dirname(sys.prefix)))",
    );
    fine(&outcome);
    assert_eq!(outcome.stdout(), "['env']\n");
    assert!(venv.is_dir());
}

fn a_directory_of_modules(world: &World) {
    let host = directory();
    fs::write(host.path().join("beside.py"), "answer = 42\n").expect("a module");
    open_to_all(&host.path().join("beside.py"));
    let recipe = || {
        let path = toml::Value::from(host.path().to_str().expect("a UTF-8 path"));
        standard().set(format!("python.path=[{path}]"))
    };
    let code = "import beside, os\n\
                try: open(beside.__file__, 'a')\n\
                except OSError as error: print(beside.answer, error.strerror)";
    let outcome = world.run(recipe(), code);
    fine(&outcome);
    assert_eq!(outcome.stdout(), "42 Read-only file system\n");
    let outcome = world.run(recipe().set("python.preload=beside"), code);
    fine(&outcome);
}

fn data_and_a_results_directory(world: &World) {
    let host = directory();
    let at = |name: &str| host.path().join(name);
    fs::create_dir_all(at("data/results")).expect("the test owns the file");
    fs::write(at("data/input"), "input").expect("a file");
    fs::write(at("single"), "single").expect("a file");
    for path in ["data", "data/results", "data/input", "single"] {
        open_to_all(&at(path));
    }
    fs::write(at("secret"), "secret").expect("a file");
    let list = |names: &[&str]| {
        let paths = names.iter().map(|name| at(name).display().to_string());
        toml::Value::from(paths.collect::<Vec<_>>()).to_string()
    };
    let recipe = standard()
        .set(format!("filesystem.read={}", list(&["data", "single"])))
        .set(format!("filesystem.write={}", list(&["data/results"])));
    let code = format!(
        "import os\n\
         os.chdir('{}')\n\
         print(open('data/input').read(), open('single').read(), os.path.exists('secret'))\n\
         open('data/results/out', 'w').write('result')\n\
         for path in ('data/input', 'data/new', 'single'):\n\
         \x20   try: open(path, 'a'); print('opened', path)\n\
         \x20   except OSError: pass",
        host.path().display()
    );
    let outcome = world.run(recipe, &code);
    fine(&outcome);
    assert_eq!(outcome.stdout(), "input single False\n");
    let result = fs::read_to_string(at("data/results/out")).expect("the file exists");
    assert_eq!(result, "result");
}

fn a_session_keeps_its_own_quota(world: &World) {
    let host = directory();
    let venv = environment(&world.host.interpreter.executable, host.path());
    let recipe = |python: &Path| -> Recipe {
        let small = standard().set("filesystem.tmp_inodes=20");
        small.set("filesystem.tmp_size=64KiB").python(python)
    };
    let code = "import os\n\
                count = 0\n\
                try:\n\
                \x20   while True:\n\
                \x20       open(f'/tmp/{count}', 'w').close()\n\
                \x20       count += 1\n\
                except OSError as error:\n\
                \x20   print(count >= 19, error.strerror)";
    let outcome = world.run(recipe(&venv), code);
    assert_eq!(outcome.stdout(), "True No space left on device\n");
}

fn runs_do_not_share_directories(world: &World) {
    let host = directory();
    let venv = environment(&world.host.interpreter.executable, host.path());
    let sandbox = world.build(standard().python(&venv));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let sandbox = &sandbox;
            scope.spawn(move || {
                for number in 0..10 {
                    let code = format!(
                        "import os, probed, sys\n\
                         path = os.path.join(os.path.dirname(sys.prefix), 'mine')\n\
                         assert not os.path.exists(path)\n\
                         open(path, 'w').write('{thread}-{number}')\n\
                         print(open(path).read())"
                    );
                    let outcome = run(sandbox, &*code);
                    fine(&outcome);
                    assert_eq!(outcome.stdout(), format!("{thread}-{number}\n"));
                }
            });
        }
    });
}
