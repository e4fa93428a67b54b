//! Tests of what starting an interpreter caches on disk, and of a cache that others can modify.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

use crate::bad_input::interpreters::file;
use crate::census::processes::{Role, family};
use crate::need::Need;
use crate::test::{Test, needing, tests};
use crate::world::World;

pub fn tests() -> Vec<Test> {
    let another = tests![replaced_interpreter_is_detected];
    let another = needing(Need::Packages, another);
    let mut tests = tests![
        later_start_reuses_the_byte_code,
        long_lived_zygote_has_separate_byte_code,
        modified_cache_file_is_replaced,
        changed_environment_is_detected,
        cache_writable_by_others_is_not_used,
        guest_cannot_write_the_cache,
        guest_cannot_replace_the_interpreter,
        unusable_cache_only_slows_a_run,
        doctor_shows_the_cache_directory,
    ];
    tests.extend(another);
    tests.extend(needing(
        Need::EveryProcess,
        tests![zygotes_parent_has_discarded_its_interpreter],
    ));
    tests
}

/// Runs the command with a temporary cache directory.
struct Started<'a> {
    world: &'a World,
    home: tempfile::TempDir,
}

impl<'a> Started<'a> {
    fn new(world: &'a World) -> Self {
        let home = tempfile::tempdir().expect("a temporary directory");
        Self { world, home }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        let interpreter = &self.world.host.interpreter.executable;
        let set = format!("python.interpreter={}", interpreter.display());
        command.args(arguments).args(["--set", &set]);
        command.env("XDG_CACHE_HOME", self.home.path());
        command
    }

    /// Runs a guest and checks that its stdout is correct and its stderr empty. Returns the log.
    #[track_caller]
    fn run(&self, change: impl Fn(&mut Command)) -> String {
        let run = |level: &str| {
            let mut command = self.command(&["run", "-c", "print(6 * 7)"]);
            command.env("SANDFORK_LOG", level);
            change(&mut command);
            output(command)
        };
        let logged = run("trace");
        assert_eq!(text(&logged.stdout), "42\n", "{}", text(&logged.stderr));
        let printed = run("off");
        assert_eq!(
            (text(&printed.stdout), text(&printed.stderr)),
            ("42\n".into(), String::new())
        );
        text(&logged.stderr)
    }

    /// Returns what a guest of this interpreter prints, and whether cached byte code was used.
    fn run_with(&self, python: &Path, code: &str) -> (String, bool) {
        let set = format!("python.interpreter={}", python.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        command.args(["run", "--set", &set, "-c", code]);
        command.env("XDG_CACHE_HOME", self.home.path());
        command.env("SANDFORK_LOG", "trace");
        let printed = output(command);
        let logged = text(&printed.stderr);
        assert!(printed.status.success(), "{logged}");
        (
            text(&printed.stdout).trim().to_owned(),
            logged.contains(USED),
        )
    }

    /// Returns the cached files.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory()).into_iter().flatten();
        let paths = entries.map(|entry| entry.expect("the file is readable").path());
        paths.collect()
    }

    fn directory(&self) -> PathBuf {
        self.home.path().join("sandfork")
    }
}

fn output(mut command: Command) -> Output {
    command.output().expect("the command starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const USED: &str = "using the cached byte code";
const UNUSED: &str = "the cached byte code is not used";

fn later_start_reuses_the_byte_code(world: &World) {
    let started = Started::new(world);
    let run = || {
        let mut command = started.command(&["run", "-c", "1"]);
        command.env("SANDFORK_LOG", "trace");
        text(&output(command).stderr)
    };
    let first = run();
    assert!(!first.contains("byte code"), "{first}");
    let [file] = &started.files()[..] else {
        panic!("{:?}", started.files());
    };
    let written = fs::metadata(file).expect("the file is cached");
    assert_eq!(written.mode() & 0o777, 0o600);
    for _ in 0..2 {
        let later = run();
        assert!(later.contains(USED), "{later}");
    }
    let kept = fs::metadata(file).expect("the file is cached");
    assert_eq!(
        (kept.ino(), kept.mtime_nsec()),
        (written.ino(), written.mtime_nsec())
    );
}

fn long_lived_zygote_has_separate_byte_code(world: &World) {
    let started = Started::new(world);
    let tasks = started.home.path().join("tasks.jsonl");
    fs::write(
        &tasks,
        "{\"code\": \"print(6 * 7)\", \"expect\": {\"stdout\": \"42\\n\"}}\n",
    )
    .expect("the test owns the file");
    let map = || {
        let mut command = started.command(&["map"]);
        command.arg(&tasks).env("SANDFORK_LOG", "trace");
        let printed = output(command);
        assert!(
            text(&printed.stdout).contains("\"ok\""),
            "{}",
            text(&printed.stderr)
        );
        text(&printed.stderr)
    };
    started.run(|_| ());
    assert!(!map().contains(USED));
    assert!(map().contains(USED));
    assert_eq!(started.files().len(), 2);
    // A long-lived zygote also has the byte code for sessions, which is several times as large.
    let mut sizes: Vec<u64> = started
        .files()
        .iter()
        .map(|file| fs::metadata(file).expect("the file is cached").len())
        .collect();
    sizes.sort_unstable();
    assert!(sizes[1] > 3 * sizes[0], "{sizes:?}");
}

fn modified_cache_file_is_replaced(world: &World) {
    let started = Started::new(world);
    started.run(|_| ());
    let [file] = &started.files()[..] else {
        panic!("{:?}", started.files());
    };
    let whole = fs::read(file).expect("the file is cached");
    let middle = whole.len() / 2;
    let mut changed = whole.clone();
    changed[middle] ^= 1;
    let too_large = vec![0; 5 << 20];
    for bytes in [&whole[..middle], &changed, &[], b"text", &too_large] {
        fs::write(file, bytes).expect("the test owns the file");
        let logged = started.run(|_| ());
        assert!(logged.contains(UNUSED), "{logged}");
        let later = started.run(|_| ());
        assert!(later.contains(USED), "{later}");
        assert_eq!(
            fs::read(file).expect("the file is cached").len(),
            whole.len()
        );
    }
}

fn changed_environment_is_detected(world: &World) {
    let environment = file("unused", 0o644, "");
    let prefix = environment.path().display().to_string();
    let interpreter = &world.host.interpreter;
    fs::create_dir(environment.path().join("bin")).expect("the test owns the file");
    let python = environment.path().join("bin/python");
    symlink(&interpreter.executable, &python).expect("the test owns the file");
    let started = Started::new(world);
    // Inside the sandbox, it is a directory only if the plan shows it.
    let code = "import os, sys; print(sys.prefix, os.path.isdir(sys.prefix))";
    let prefix_of_guest = || started.run_with(&python, code);
    let outside = format!("{} True", interpreter.base_prefix.display());
    let inside = format!("{prefix} True");
    let configuration = environment.path().join("pyvenv.cfg");
    let home = interpreter
        .executable
        .parent()
        .expect("the path has a parent");
    assert_eq!(prefix_of_guest(), (outside.clone(), false));
    // Since Python 3.14 the interpreter's own answer differs, so no cached start of the other is used.
    let is_same_answer = interpreter.version < (3, 14, 0);
    for is_second in [false, true] {
        let is_kept = is_same_answer || !is_second;
        assert_eq!(prefix_of_guest(), (outside.clone(), is_kept));
        fs::write(&configuration, format!("home = {}\n", home.display()))
            .expect("the test owns the file");
        // Where the answer is the same, the configuration file is checked each time.
        assert_eq!(prefix_of_guest(), (inside.clone(), is_same_answer));
        fs::remove_file(&configuration).expect("the test owns the file");
    }
}

fn replaced_interpreter_is_detected(world: &World) {
    let directory = file("unused", 0o644, "");
    let link = directory.path().join("python");
    let started = Started::new(world);
    // With only one interpreter, its second turn follows its own first turn.
    let is_alone = world.pythons.len() == 1;
    for is_second in [false, true] {
        for python in &world.pythons {
            _ = fs::remove_file(&link);
            symlink(&python.executable, &link).expect("the test owns the file");
            let code = "import json, sys; print(*sys.version_info[:3], sep='.')";
            for is_kept in [is_alone && is_second, true] {
                let version = python.version_text();
                assert_eq!(started.run_with(&link, code), (version, is_kept));
            }
        }
    }
}

fn cache_writable_by_others_is_not_used(world: &World) {
    let started = Started::new(world);
    started.run(|_| ());
    let [file] = &started.files()[..] else {
        panic!("{:?}", started.files());
    };
    let (home, directory) = (started.home.path(), started.directory());
    let refused = |says: &str| {
        let logged = started.run(|_| ());
        assert!(
            !logged.contains(USED) && logged.contains(says),
            "{says}: {logged}"
        );
    };
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
            .expect("the test owns the file");
    };
    for path in [&*directory, home] {
        open(path, 0o777);
        refused("can be written by others");
        open(path, 0o700);
    }
    let moved = home.join("moved");
    fs::rename(&directory, &moved).expect("the test owns the file");
    symlink(&moved, &directory).expect("the test owns the file");
    refused("sandfork");
    fs::remove_file(&directory).expect("the test owns the file");
    fs::rename(&moved, &directory).expect("the test owns the file");
    // A file that other users can write to is replaced.
    open(file, 0o620);
    let logged = started.run(|_| ());
    assert!(logged.contains(UNUSED), "{logged}");
    assert_eq!(
        fs::metadata(file).expect("the file is cached").mode() & 0o777,
        0o600
    );
    fs::hard_link(file, &moved).expect("the test owns the file");
    fs::remove_file(file).expect("the test owns the file");
    symlink(&moved, file).expect("the test owns the file");
    let logged = started.run(|_| ());
    assert!(logged.contains(UNUSED), "{logged}");
    assert!(started.run(|_| ()).contains(USED));
    assert!(
        fs::symlink_metadata(file)
            .expect("the file is cached")
            .is_file()
    );
    if geteuid().is_root() {
        // As with `sudo`, which may keep HOME.
        for theirs in [&*directory, home] {
            chown(theirs, Some(1), None).expect("root has the privilege");
            let logged = started.run(|_| ());
            assert!(!logged.contains(USED), "{logged}");
            chown(theirs, Some(0), None).expect("root has the privilege");
        }
        chown(file, Some(1), None).expect("root has the privilege");
        let logged = started.run(|_| ());
        assert!(logged.contains(UNUSED), "{logged}");
        fs::remove_dir_all(&directory).expect("the test owns the file");
        chown(home, Some(1), None).expect("root has the privilege");
        refused("belongs to another user");
        assert!(!directory.exists(), "root's directory is in another user's");
        chown(home, Some(0), None).expect("root has the privilege");
    }
}

// The control is the same guest with the cache in another directory. It leaves a file that a later start would use, as
// root too if the file system supports id-mapped mounts.
fn guest_cannot_write_the_cache(world: &World) {
    let started = Started::new(world);
    let home = started.home.path();
    let writable = format!("filesystem.write=[\"{}\"]", home.display());
    let code = format!(
        "import os\nos.mkdir('{0}')\nos.close(os.open('{0}/start-guest', os.O_CREAT, 0o600))",
        started.directory().display()
    );
    let run = |elsewhere: Option<&Path>| {
        let mut command = started.command(&["run", "-c", &code, "--set", &writable]);
        command.env("XDG_CACHE_HOME", elsewhere.unwrap_or(home));
        text(&output(command).stderr)
    };
    let other = tempfile::tempdir().expect("a temporary directory");
    let printed = run(Some(other.path()));
    if printed.is_empty() {
        let left = fs::metadata(&started.files()[0]).expect("the file was left behind");
        assert_eq!(left.uid(), geteuid().as_raw());
        fs::remove_dir_all(started.directory()).expect("the test owns the file");
    } else {
        assert!(printed.contains("PermissionError"), "{printed}");
    }
    let printed = run(None);
    assert!(printed.contains("cannot be writable"), "{printed}");
    assert!(started.files().is_empty(), "the guest ran");
}

fn unusable_cache_only_slows_a_run(world: &World) {
    let started = Started::new(world);
    let refused = |says: &str, change: &dyn Fn(&mut Command)| {
        let logged = started.run(change);
        assert!(
            !logged.contains(USED) && logged.contains(says),
            "{says}: {logged}"
        );
        assert!(started.files().is_empty(), "{says}");
    };
    refused("neither XDG_CACHE_HOME nor HOME", &|command| {
        command.env_remove("XDG_CACHE_HOME").env_remove("HOME");
    });
    refused("neither XDG_CACHE_HOME nor HOME", &|command| {
        command.env("XDG_CACHE_HOME", "relative").env("HOME", "");
    });
    let no_home = started.home.path().join("none");
    refused("HOME does not exist", &|command| {
        command.env_remove("XDG_CACHE_HOME").env("HOME", &no_home);
    });
    assert!(!no_home.exists());
    refused("the byte code is not kept", &|command| {
        command.env("XDG_CACHE_HOME", "/dev/null");
    });
    // Not even root can create a directory or a file there.
    refused("the byte code is not kept", &|command| {
        command.env("XDG_CACHE_HOME", "/proc");
    });
    if geteuid().is_root() {
        for (options, says) in [
            ("size=16k", "No space left"),
            ("ro", "Read-only file system"),
        ] {
            refused(says, &|command| {
                in_mount(command, started.home.path(), options);
            });
        }
    }
}

fn doctor_shows_the_cache_directory(world: &World) {
    let started = Started::new(world);
    let says = |home: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        command.arg("doctor").env("XDG_CACHE_HOME", home);
        let printed = text(&output(command).stdout);
        let line = printed
            .lines()
            .find_map(|line| line.strip_prefix("  cache "));
        line.expect("it has the line").trim().to_owned()
    };
    let (home, directory) = (started.home.path(), started.directory());
    let usable = format!("yes       {}", directory.display());
    assert_eq!(says(home), usable);
    fs::create_dir_all(&directory).expect("the test owns the file");
    assert_eq!(says(home), usable);
    for open in [&*directory, home] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777))
            .expect("the test owns the file");
        let remedy = format!("`chmod go-w {}`", open.display());
        assert!(says(home).starts_with("no  ") && says(home).contains(&remedy));
        fs::set_permissions(open, fs::Permissions::from_mode(0o755))
            .expect("the test owns the file");
        assert_eq!(says(home), usable);
    }
    assert!(says("/dev/null".as_ref()).starts_with("no  "));
}

/// Changes the command to run in a mount namespace where a tmpfs with these options covers a directory.
fn in_mount(command: &mut Command, directory: &Path, options: &str) {
    let script = "mount -t tmpfs -o \"$1\" none \"$2\" && shift 2 && exec \"$@\"";
    let mut mounted = Command::new("unshare");
    mounted.args(["-m", "sh", "-c", script, "sh", options]);
    mounted
        .arg(directory)
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            mounted.env(name, value);
        }
    }
    *command = mounted;
}

// The process has been an interpreter. The kernel would copy each page that it still shares with its zygote when either
// writes to it, and the caller of a single run would wait while all of them are freed.
fn zygotes_parent_has_discarded_its_interpreter(world: &World) {
    let started = Started::new(world);
    let waits = "import time; print('on', flush=True); time.sleep(600)";
    let mut command = started.command(&["run", "-c", waits]);
    let mut run = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the process starts");
    let mut output = BufReader::new(run.stdout.take().expect("the stream is piped"));
    let mut line = String::new();
    output.read_line(&mut line).expect("it prints");
    assert_eq!(line, "on\n");
    let family = family(run.id());
    let of = |role: Role| {
        let mut found = family
            .iter()
            .filter(|process| process.role == role && process.pid != run.id());
        found.next().expect("there is one").pid
    };
    let status = |pid: u32, field: &str| {
        let status =
            fs::read_to_string(format!("/proc/{pid}/status")).expect("the file is readable");
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.expect("a field of status").trim().to_owned()
    };
    let resident = |pid: u32| -> u64 {
        let size = status(pid, "VmRSS:");
        let size = size.strip_suffix(" kB").expect("a size");
        size.trim().parse().expect("a number")
    };
    let outside = of(Role::Outside);
    let (its, zygotes) = (resident(outside), resident(of(Role::Zygote)));
    // Python's SIGINT handler is gone with the interpreter.
    let blocked = u64::from_str_radix(&status(outside, "SigBlk:"), 16).expect("a set of signals");
    kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGTERM).expect("the program runs");
    run.wait().expect("the process ends");
    assert!(its * 2 < zygotes, "{its} kB of {zygotes}");
    assert_eq!(blocked, 1 << (Signal::SIGINT as u64 - 1));
}

// The control is the same guest when another interpreter is started: it moves the environment away.
fn guest_cannot_replace_the_interpreter(world: &World) {
    let started = Started::new(world);
    let project = tempfile::tempdir().expect("a temporary directory");
    let (venv, away) = (project.path().join(".venv"), project.path().join("away"));
    let python = &world.host.interpreter.executable;
    let home = python.parent().expect("the path has a parent").display();
    fs::create_dir_all(venv.join("bin")).expect("a directory");
    symlink(python, venv.join("bin/python")).expect("a link");
    fs::write(venv.join("pyvenv.cfg"), format!("home = {home}\n")).expect("a file");
    let writable = format!("filesystem.write=[\"{}\"]", project.path().display());
    let code = format!(
        "import os; os.rename('{}', '{}')",
        venv.display(),
        away.display()
    );
    let run = |interpreter: &Path| {
        let set = format!("python.interpreter={}", interpreter.display());
        let run = ["run", "-c", &code, "--set", &writable, "--set", &set];
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        command.args(run).env("XDG_CACHE_HOME", started.home.path());
        text(&output(command).stderr)
    };
    let printed = run(python);
    if printed.is_empty() {
        assert!(away.exists(), "the guest can write there");
        fs::rename(&away, &venv).expect("the test owns the file");
    } else {
        // As root on a file system without id-mapped mounts.
        assert!(printed.contains("PermissionError"), "{printed}");
    }
    for interpreter in [&venv, &venv.join("bin/python")] {
        let printed = run(interpreter);
        assert!(printed.contains("cannot be writable"), "{printed}");
        assert!(!away.exists(), "the guest ran");
    }
}
