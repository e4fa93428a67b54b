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
    let another = tests![another_interpreter_at_the_same_path_is_planned_for_as_it_is];
    let another = needing(Need::Packages, another);
    let mut tests = tests![
        a_later_start_uses_the_byte_code_of_the_first,
        an_interpreter_that_lasts_has_its_own_byte_code,
        a_file_that_is_not_as_it_was_written_is_replaced,
        an_environment_is_planned_for_as_it_is,
        what_is_in_other_hands_is_not_used,
        a_guest_cannot_write_what_later_starts_use,
        a_guest_cannot_exchange_the_interpreter_of_later_starts,
        where_nothing_can_be_kept_a_run_is_only_slower,
        doctor_says_where_starts_are_kept,
    ];
    tests.extend(another);
    tests.extend(needing(
        Need::EveryProcess,
        tests![the_process_that_waits_for_a_zygote_has_no_interpreter_any_more],
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
        let said = run("off");
        assert_eq!(
            (text(&said.stdout), text(&said.stderr)),
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
        let said = output(command);
        let logged = text(&said.stderr);
        assert!(said.status.success(), "{logged}");
        (text(&said.stdout).trim().to_owned(), logged.contains(USED))
    }

    /// Returns the cached files.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.directory()).into_iter().flatten();
        let paths = entries.map(|entry| entry.expect("it can be read").path());
        paths.collect()
    }

    fn directory(&self) -> PathBuf {
        self.home.path().join("sandfork")
    }
}

fn output(mut command: Command) -> Output {
    command.output().expect("the command can be started")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const USED: &str = "the byte code of an earlier start is used";
const UNUSED: &str = "the byte code that is kept is not used";

fn a_later_start_uses_the_byte_code_of_the_first(world: &World) {
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
    let written = fs::metadata(file).expect("it was kept");
    assert_eq!(written.mode() & 0o777, 0o600);
    for _ in 0..2 {
        let later = run();
        assert!(later.contains(USED), "{later}");
    }
    let kept = fs::metadata(file).expect("it is kept");
    assert_eq!(
        (kept.ino(), kept.mtime_nsec()),
        (written.ino(), written.mtime_nsec())
    );
}

fn an_interpreter_that_lasts_has_its_own_byte_code(world: &World) {
    let started = Started::new(world);
    let tasks = started.home.path().join("tasks.jsonl");
    fs::write(
        &tasks,
        "{\"code\": \"print(6 * 7)\", \"expect\": {\"stdout\": \"42\\n\"}}\n",
    )
    .expect("it is ours");
    let map = || {
        let mut command = started.command(&["map"]);
        command.arg(&tasks).env("SANDFORK_LOG", "trace");
        let said = output(command);
        assert!(
            text(&said.stdout).contains("\"ok\""),
            "{}",
            text(&said.stderr)
        );
        text(&said.stderr)
    };
    started.run(|_| ());
    assert!(!map().contains(USED));
    assert!(map().contains(USED));
    assert_eq!(started.files().len(), 2);
    // A long-lived zygote also has the byte code for sessions, which is several times as large.
    let mut sizes: Vec<u64> = started
        .files()
        .iter()
        .map(|file| fs::metadata(file).expect("it is kept").len())
        .collect();
    sizes.sort_unstable();
    assert!(sizes[1] > 3 * sizes[0], "{sizes:?}");
}

fn a_file_that_is_not_as_it_was_written_is_replaced(world: &World) {
    let started = Started::new(world);
    started.run(|_| ());
    let [file] = &started.files()[..] else {
        panic!("{:?}", started.files());
    };
    let whole = fs::read(file).expect("it was kept");
    let middle = whole.len() / 2;
    let mut changed = whole.clone();
    changed[middle] ^= 1;
    let too_large = vec![0; 5 << 20];
    for bytes in [&whole[..middle], &changed, &[], b"text", &too_large] {
        fs::write(file, bytes).expect("it is ours");
        let logged = started.run(|_| ());
        assert!(logged.contains(UNUSED), "{logged}");
        let later = started.run(|_| ());
        assert!(later.contains(USED), "{later}");
        assert_eq!(fs::read(file).expect("it was kept").len(), whole.len());
    }
}

fn an_environment_is_planned_for_as_it_is(world: &World) {
    let environment = file("unused", 0o644, "");
    let prefix = environment.path().display().to_string();
    let interpreter = &world.host.interpreter;
    fs::create_dir(environment.path().join("bin")).expect("it is ours");
    let python = environment.path().join("bin/python");
    symlink(&interpreter.executable, &python).expect("it is ours");
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
        .expect("it is in a directory");
    assert_eq!(prefix_of_guest(), (outside.clone(), false));
    // Since Python 3.14 the interpreter's own answer differs, so no cached start of the other is used.
    let is_same_answer = interpreter.version < (3, 14, 0);
    for is_second in [false, true] {
        let is_kept = is_same_answer || !is_second;
        assert_eq!(prefix_of_guest(), (outside.clone(), is_kept));
        fs::write(&configuration, format!("home = {}\n", home.display())).expect("it is ours");
        // Where the answer is the same, the configuration file is checked each time.
        assert_eq!(prefix_of_guest(), (inside.clone(), is_same_answer));
        fs::remove_file(&configuration).expect("it is ours");
    }
}

fn another_interpreter_at_the_same_path_is_planned_for_as_it_is(world: &World) {
    let directory = file("unused", 0o644, "");
    let link = directory.path().join("python");
    let started = Started::new(world);
    // With only one interpreter, its second turn follows its own first turn.
    let is_alone = world.pythons.len() == 1;
    for is_second in [false, true] {
        for python in &world.pythons {
            _ = fs::remove_file(&link);
            symlink(&python.executable, &link).expect("it is ours");
            let code = "import json, sys; print(*sys.version_info[:3], sep='.')";
            for is_kept in [is_alone && is_second, true] {
                let version = python.version_text();
                assert_eq!(started.run_with(&link, code), (version, is_kept));
            }
        }
    }
}

fn what_is_in_other_hands_is_not_used(world: &World) {
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
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
    };
    for path in [&*directory, home] {
        open(path, 0o777);
        refused("can be written by others");
        open(path, 0o700);
    }
    let moved = home.join("moved");
    fs::rename(&directory, &moved).expect("it is ours");
    symlink(&moved, &directory).expect("it is ours");
    refused("sandfork");
    fs::remove_file(&directory).expect("it is ours");
    fs::rename(&moved, &directory).expect("it is ours");
    // A file that other users can write to is replaced.
    open(file, 0o620);
    let logged = started.run(|_| ());
    assert!(logged.contains(UNUSED), "{logged}");
    assert_eq!(
        fs::metadata(file).expect("it is kept").mode() & 0o777,
        0o600
    );
    fs::hard_link(file, &moved).expect("it is ours");
    fs::remove_file(file).expect("it is ours");
    symlink(&moved, file).expect("it is ours");
    let logged = started.run(|_| ());
    assert!(logged.contains(UNUSED), "{logged}");
    assert!(started.run(|_| ()).contains(USED));
    assert!(fs::symlink_metadata(file).expect("it is kept").is_file());
    if geteuid().is_root() {
        // As with `sudo`, which may keep HOME.
        for theirs in [&*directory, home] {
            chown(theirs, Some(1), None).expect("root may");
            let logged = started.run(|_| ());
            assert!(!logged.contains(USED), "{logged}");
            chown(theirs, Some(0), None).expect("root may");
        }
        chown(file, Some(1), None).expect("root may");
        let logged = started.run(|_| ());
        assert!(logged.contains(UNUSED), "{logged}");
        fs::remove_dir_all(&directory).expect("it is ours");
        chown(home, Some(1), None).expect("root may");
        refused("belongs to another user");
        assert!(!directory.exists(), "root's directory is in another user's");
        chown(home, Some(0), None).expect("root may");
    }
}

// The control is the same guest with the cache in another directory. It leaves a file that a later start would use, as
// root too if the file system supports id-mapped mounts.
fn a_guest_cannot_write_what_later_starts_use(world: &World) {
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
    let said = run(Some(other.path()));
    if said.is_empty() {
        let left = fs::metadata(&started.files()[0]).expect("it was left");
        assert_eq!(left.uid(), geteuid().as_raw());
        fs::remove_dir_all(started.directory()).expect("it is ours");
    } else {
        assert!(said.contains("PermissionError"), "{said}");
    }
    let said = run(None);
    assert!(said.contains("cannot be writable"), "{said}");
    assert!(started.files().is_empty(), "the guest ran");
}

fn where_nothing_can_be_kept_a_run_is_only_slower(world: &World) {
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

fn doctor_says_where_starts_are_kept(world: &World) {
    let started = Started::new(world);
    let says = |home: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        command.arg("doctor").env("XDG_CACHE_HOME", home);
        let said = text(&output(command).stdout);
        let line = said.lines().find_map(|line| line.strip_prefix("  cache "));
        line.expect("it has the line").trim().to_owned()
    };
    let (home, directory) = (started.home.path(), started.directory());
    let usable = format!("yes       {}", directory.display());
    assert_eq!(says(home), usable);
    fs::create_dir_all(&directory).expect("it is ours");
    assert_eq!(says(home), usable);
    for open in [&*directory, home] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777)).expect("it is ours");
        let remedy = format!("`chmod go-w {}`", open.display());
        assert!(says(home).starts_with("no  ") && says(home).contains(&remedy));
        fs::set_permissions(open, fs::Permissions::from_mode(0o755)).expect("it is ours");
        assert_eq!(says(home), usable);
    }
    assert!(says("/dev/null".as_ref()).starts_with("no  "));
}

/// Runs the command in a mount namespace with a tmpfs with these options over a directory.
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
fn the_process_that_waits_for_a_zygote_has_no_interpreter_any_more(world: &World) {
    let started = Started::new(world);
    let waits = "import time; print('on', flush=True); time.sleep(600)";
    let mut command = started.command(&["run", "-c", waits]);
    let mut run = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let mut output = BufReader::new(run.stdout.take().expect("it is a pipe"));
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
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it can be read");
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
    kill(Pid::from_raw(run.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    run.wait().expect("it ends");
    assert!(its * 2 < zygotes, "{its} kB of {zygotes}");
    assert_eq!(blocked, 1 << (Signal::SIGINT as u64 - 1));
}

// The control is the same guest when another interpreter is started: it moves the environment away.
fn a_guest_cannot_exchange_the_interpreter_of_later_starts(world: &World) {
    let started = Started::new(world);
    let project = tempfile::tempdir().expect("a temporary directory");
    let (venv, away) = (project.path().join(".venv"), project.path().join("away"));
    let python = &world.host.interpreter.executable;
    let home = python.parent().expect("it lies in a directory").display();
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
    let said = run(python);
    if said.is_empty() {
        assert!(away.exists(), "the guest can write there");
        fs::rename(&away, &venv).expect("it is ours");
    } else {
        // As root on a file system without id-mapped mounts.
        assert!(said.contains("PermissionError"), "{said}");
    }
    for interpreter in [&venv, &venv.join("bin/python")] {
        let said = run(interpreter);
        assert!(said.contains("cannot be writable"), "{said}");
        assert!(!away.exists(), "the guest ran");
    }
}
