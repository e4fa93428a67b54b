//! Tests of `sandfork env` and of policies with packages. The package index runs on loopback (`index.py`).

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use nix::unistd::Pid;
use sandfork::internals::protocol::VERSION;
use sandfork::{CallerEnvironment, ErrorKind, FileSystem, Policy, Sandbox};
use sandfork_jail::sys::descriptors::send;

use super::behaviour::{sandfork, signal};
use super::map::descendants;
use super::trials;

trials! {
    packages_are_installed_and_imported,
    the_same_wheels_are_one_environment,
    a_hostile_or_broken_index_leaves_nothing,
    lock_file_hashes_are_enforced,
    requirements_file_is_applied,
    a_directory_of_wheels_needs_no_network,
    index_password_stays_outside_the_sandbox,
    concurrent_creations_make_one_environment,
    interrupted_creation_leaves_nothing,
    killed_installation_is_reported,
    supervisor_stops_installing_after_a_disconnect,
    policy_packages_are_installed,
    packages_are_added_to_a_running_session,
    a_source_distribution_is_built_in_a_sandbox,
    an_environment_in_use_is_not_removed,
    guest_cannot_change_an_environment,
    startup_code_of_packages_is_confined,
    store_of_another_user_is_rejected,
    damaged_environment_is_reported_in_the_list,
    invalid_input_is_reported,
}

/// A package index, and a directory for environments.
pub struct Scene {
    index: Child,
    stdin: Option<ChildStdin>,
    port: u16,
    data: tempfile::TempDir,
    /// The value of `SANDFORK_UV`.
    uv: String,
}

impl Drop for Scene {
    fn drop(&mut self) {
        // The index ends at EOF of its stdin.
        drop(self.stdin.take());
        _ = self.index.wait();
        // The directories of an environment are read-only.
        _ = Command::new("chmod")
            .args(["-R", "u+w"])
            .arg(self.data.path())
            .status();
    }
}

impl Scene {
    pub fn new() -> Result<Self, Failed> {
        Self::new_with_uv("")
    }

    /// Creates a scene whose commands use this uv, or pip if `uv` is empty.
    pub fn new_with_uv(uv: &str) -> Result<Self, Failed> {
        let mut index = Command::new("python3")
            .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/index.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let stdin = index.stdin.take();
        let mut line = String::new();
        BufReader::new(index.stdout.take().ok_or("no pipe")?).read_line(&mut line)?;
        Ok(Self {
            index,
            stdin,
            port: line.trim().parse()?,
            data: tempfile::tempdir_in("/var/tmp")?,
            uv: uv.to_owned(),
        })
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        self.with_variables(sandfork(arguments))
    }

    fn with_variables(&self, mut command: Command) -> Command {
        for (name, value) in self.variables() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// Returns the changes to the test's environment variables.
    fn variables(&self) -> Vec<(String, Option<String>)> {
        let mut variables = Vec::new();
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy().to_ascii_uppercase();
            if name.starts_with("PIP_") || name.starts_with("UV_") || name.ends_with("_PROXY") {
                variables.extend([(name.to_lowercase(), None), (name, None)]);
            }
        }
        let index = format!("http://127.0.0.1:{}/simple", self.port);
        let set = [
            ("XDG_DATA_HOME", self.data.path().display().to_string()),
            ("PIP_CONFIG_FILE", "/dev/null".to_owned()),
            ("UV_NO_CONFIG", "1".to_owned()),
            ("PIP_INDEX_URL", index),
            ("SANDFORK_UV", self.uv.clone()),
        ];
        variables.extend(set.map(|(name, value)| (name.to_owned(), Some(value))));
        variables
    }

    /// Builds a sandbox in this process, under the standard policy with this override.
    fn sandbox(&self, set: &str) -> Result<Arc<Sandbox>, Failed> {
        let policy = Policy::load("standard", &[set.parse()?], &FileSystem)?;
        let environment = CallerEnvironment::current().changed_by(self.variables());
        let builder = Sandbox::builder().policy(policy).environment(environment);
        Ok(Arc::new(builder.build()?))
    }

    fn run(&self, arguments: &[&str]) -> Result<Output, Failed> {
        Ok(self.command(arguments).output()?)
    }

    /// Runs a command that must succeed and returns its output.
    pub fn printed(&self, arguments: &[&str]) -> Result<String, Failed> {
        let output = self.run(arguments)?;
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        Ok(String::from_utf8_lossy(&output.stdout)
            .trim_end()
            .to_owned())
    }

    /// Runs a command that must fail and returns its message.
    pub fn refused(&self, arguments: &[&str]) -> Result<String, Failed> {
        let output = self.run(arguments)?;
        assert!(!output.status.success(), "{arguments:?}: {output:?}");
        let message = String::from_utf8_lossy(&output.stderr)
            .trim_end()
            .to_owned();
        Ok(message
            .strip_prefix("sandfork: ")
            .unwrap_or(&message)
            .to_owned())
    }

    pub const fn port(&self) -> u16 {
        self.port
    }

    pub fn data_dir(&self) -> &Path {
        self.data.path()
    }

    /// Downloads wheels of the index into a directory.
    pub fn wheels(&self) -> Result<tempfile::TempDir, Failed> {
        let wheels = tempfile::tempdir_in("/var/tmp")?;
        let fetch = "import sys, urllib.request as r
for name in ('shapes-1.0', 'colours-1.5'):
    name += '-py3-none-any.whl'
    r.urlretrieve(f'http://127.0.0.1:{sys.argv[1]}/files/{name}', f'{sys.argv[2]}/{name}')";
        let fetched = Command::new("python3")
            .args(["-c", fetch, &self.port.to_string()])
            .arg(wheels.path())
            .env("NO_PROXY", "*")
            .status()?;
        assert!(fetched.success());
        Ok(wheels)
    }

    fn store(&self) -> PathBuf {
        self.data.path().join("sandfork/environments")
    }

    /// Returns the number of complete, named and staged environments.
    pub fn counts(&self) -> [usize; 3] {
        ["store", "names", "staging"].map(|name| {
            let entries = fs::read_dir(self.store().join(name));
            entries.map_or(0, Iterator::count)
        })
    }
}

const IN_SHAPES: &str = "import shapes, subprocess, sys, importlib.metadata as metadata
bin = sys.prefix + '/bin/'
message = [subprocess.run([bin + name], capture_output=True, text=True).stdout for name in ('colour', 'colour-script')]
print(shapes.sides, shapes.red, metadata.version('colours'), message, shapes.__cached__.startswith(sys.prefix))
print(sorted(str(file) for file in metadata.files('colours') if not (open(file.locate()).read or 0)))";

fn packages_are_installed_and_imported() -> Result<(), Failed> {
    let scene = Scene::new()?;
    scene.printed(&["env", "create", "shapes", "shapes"])?;
    assert_eq!(scene.counts(), [1, 1, 0]);
    let run = ["run", "--set", "python.environment=shapes", "-c", IN_SHAPES];
    let printed = scene.printed(&run)?;
    assert_eq!(printed, "4 ff0000 1.5 ['ff0000\\n', 'ff0000\\n'] True\n[]");
    // Compiled in advance, although one file does not compile on this Python version.
    let shown: serde_json::Value =
        serde_json::from_str(&scene.printed(&["env", "show", "shapes", "--json"])?)?;
    assert_eq!(
        shown["packages"],
        serde_json::json!({ "colours": "1.5", "shapes": "2.0" })
    );
    let path = PathBuf::from(shown["path"].as_str().ok_or("a path")?);
    assert!(path.join("share/colours/list.txt").exists());
    let files = Command::new("find").arg(&path).output()?;
    let files = String::from_utf8(files.stdout)?;
    assert!(files.contains("/include/site/python"), "{files}");
    assert!(files.contains("/__pycache__/colours.cpython-"), "{files}");
    assert!(!files.contains("/__pycache__/colours_py2"), "{files}");
    // Nothing in the environment is writable.
    let open = Command::new("find")
        .arg(&path)
        .args(["-perm", "/222", "!", "-type", "l"])
        .output()?;
    assert_eq!(String::from_utf8(open.stdout)?, "");
    let listed = scene.printed(&["env", "list"])?;
    assert!(listed.starts_with("shapes  CPython 3."), "{listed}");
    Ok(())
}

fn the_same_wheels_are_one_environment() -> Result<(), Failed> {
    let scene = Scene::new()?;
    for arguments in [
        &["one", "shapes"][..],
        &["one", "shapes"],
        &["two", "shapes==2.0", "colours"],
        &["three", "colours", "shapes==2.0"],
        &["four", "colours"],
    ] {
        scene.printed(&[&["env", "create"], arguments].concat())?;
    }
    // The first three environments have the same wheels, although they request one or both of them.
    assert_eq!(scene.counts(), [2, 4, 0]);
    scene.printed(&["env", "remove", "four"])?;
    assert_eq!(scene.counts(), [1, 3, 0]);
    scene.printed(&["env", "remove", "two"])?;
    scene.printed(&["env", "remove", "one"])?;
    assert_eq!(scene.counts(), [1, 1, 0]);
    scene.printed(&["env", "remove", "three"])?;
    assert_eq!(scene.counts(), [0, 0, 0]);
    scene.printed(&["env", "create", "one", "shapes"])?;
    let message = scene.refused(&["env", "create", "one", "colours"])?;
    assert!(
        message.starts_with("the environment `one` has other packages (shapes for /"),
        "{message}"
    );
    Ok(())
}

fn a_hostile_or_broken_index_leaves_nothing() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let marks = ["/tmp/climbed", "/etc/rooted", "/tmp/sandfork-test-built"].map(Path::new);
    for (package, expected) in [
        (
            "tampered",
            "tampered-1.0-py3-none-any.whl does not have the hash that the index or the lock gives",
        ),
        (
            "late",
            "late-1.0-py3-none-any.whl does not have the locked hash: sha256 is ",
        ),
        ("torn", "packages cannot be installed"),
        ("halfway", "halfway-1.0-py3-none-any.whl "),
        (
            "climber",
            "../../../../../../tmp/climbed`, which leads out of its environment",
        ),
        (
            "rooted",
            "a wheel has the file `/etc/rooted`, which leads out of its environment",
        ),
        (
            "usurper",
            "a wheel has the file `pyvenv.cfg`, which every environment creates itself",
        ),
        (
            "impostor",
            "a wheel has the file `bin/python`, which every environment creates itself",
        ),
        (
            "pointer",
            "a wheel has the file `bin/../../pointer`, which leads out of its environment",
        ),
        ("twofold", "dist-info"),
        (
            "elsewhere",
            "`--allow-host elsewhere.example` lets it reach that host",
        ),
        (
            "other-platform",
            "`other-platform` is not found: its wheels are for other interpreters or machines",
        ),
        (
            "source",
            "`source` is not found: the index has no wheel of it for this interpreter; if it has a source distribution, building that runs its code; `--allow-build` does so in a sandbox",
        ),
        (
            "absent",
            "`absent` is not found: the index has no such version",
        ),
        (
            "shapes==9",
            "`shapes==9` is not found: the index has no such version",
        ),
    ] {
        let message = scene.refused(&["env", "create", "hostile", "colours", package])?;
        assert!(message.contains(expected), "{package}: {message}");
        assert_eq!(scene.counts(), [0, 0, 0], "{package}");
    }
    for mark in marks {
        assert!(!mark.exists(), "{}", mark.display());
    }
    for (path, expected) in [
        ("nonsense/simple", "the index sent no valid answer"),
        ("halved/simple", "the index sent no valid answer"),
        ("secret/simple", "401 Client Error"),
    ] {
        let url = format!("http://127.0.0.1:{}/{path}", scene.port);
        let message = scene.refused(&["env", "create", "broken", "shapes", "--index-url", &url])?;
        assert!(message.contains(expected), "{path}: {message}");
    }
    let message = scene.refused(&[
        "env",
        "create",
        "broken",
        "shapes",
        "--index-url",
        "http://127.0.0.1:9/simple",
    ])?;
    assert!(message.contains("127.0.0.1: unreachable"), "{message}");
    assert_eq!(scene.counts(), [0, 0, 0]);
    // A symlink in a wheel becomes a regular file that contains the path of its target.
    scene.printed(&["env", "create", "linked", "linked"])?;
    let code = "import linked, os; path = os.path.dirname(linked.__file__) + '/linked_link.py'; print(os.path.islink(path), open(path).read())";
    assert_eq!(
        scene.printed(&["run", "--set", "python.environment=linked", "-c", code])?,
        "False /etc/passwd"
    );
    Ok(())
}

fn lock_file_hashes_are_enforced() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let beside = scene.refused(&["env", "create", "x", "six", "--lock", "/nowhere.toml"])?;
    assert!(beside.ends_with("leave out `six`, or the lock"), "{beside}");
    scene.printed(&["env", "create", "one", "shapes==1.0"])?;
    let lock = scene.data.path().join("pylock.toml");
    let file = lock.display().to_string();
    scene.printed(&["env", "export", "one", "-o", &file])?;
    assert_eq!(
        scene.printed(&["env", "export", "one"])?,
        fs::read_to_string(&lock)?.trim_end()
    );
    scene.printed(&["env", "create", "two", "--lock", &file])?;
    // The same wheels make one environment, although only one of them was requested by name.
    assert_eq!(scene.counts(), [1, 2, 0]);
    let shown = scene.printed(&["env", "list"])? + &scene.printed(&["env", "show", "two"])?;
    assert!(shown.contains("shapes==1.0"), "{shown}");
    assert!(!shown.contains("--hash"), "{shown}");
    let run = |name: &str| {
        scene.printed(&[
            "run",
            "--set",
            &format!("python.environment={name}"),
            "-c",
            "import shapes; print(shapes.sides)",
        ])
    };
    assert_eq!((run("one")?, run("two")?), ("3".to_owned(), "3".to_owned()));
    let text = fs::read_to_string(&lock)?;
    let at = text.find("sha256 = \"").ok_or("a hash")? + 10;
    let other = format!("{}{}{}", &text[..at], "0".repeat(64), &text[at + 64..]);
    fs::write(&lock, other)?;
    let before = scene.counts();
    let message = scene.refused(&["env", "create", "three", "--lock", &file])?;
    assert!(
        message.contains("-py3-none-any.whl does not have the hash"),
        "{message}"
    );
    fs::write(&lock, "[tool]\n")?;
    let message = scene.refused(&["env", "create", "three", "--lock", &file])?;
    assert!(
        message.contains("is not a valid pylock.toml (its `lock-version` is not 1.0)"),
        "{message}"
    );
    assert_eq!(scene.counts(), before);
    Ok(())
}

fn requirements_file_is_applied() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let file = scene.data.path().join("requirements.txt");
    fs::write(
        &file,
        "--index-url http://127.0.0.1:9/\nshapes\n-c bounds.txt\n",
    )?;
    fs::write(scene.data.path().join("bounds.txt"), "shapes < 2\n")?;
    let path = file.display().to_string();
    let index = format!("http://127.0.0.1:{}/simple", scene.port);
    scene.printed(&["env", "create", "bound", "-r", &path, "--index-url", &index])?;
    let code = "import shapes; print(shapes.sides)";
    assert_eq!(
        scene.printed(&["run", "--set", "python.environment=bound", "-c", code])?,
        "3"
    );
    fs::write(&file, "shapes\n-e .\n")?;
    let message = scene.refused(&["env", "create", "other", "-r", &path])?;
    assert!(
        message.contains("requirements.txt:2: an editable project cannot"),
        "{message}"
    );
    Ok(())
}

fn a_directory_of_wheels_needs_no_network() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let wheels = scene.wheels()?;
    let create = |name: &str, package: &str| -> Result<Output, Failed> {
        let mut command = scene.command(&["env", "create", name, package]);
        command
            .env("PIP_NO_INDEX", "1")
            .env("PIP_FIND_LINKS", wheels.path());
        Ok(command.output()?)
    };
    let made = create("offline", "shapes")?;
    assert!(made.status.success(), "{made:?}");
    let code = "import shapes; print(shapes.sides)";
    assert_eq!(
        scene.printed(&["run", "--set", "python.environment=offline", "-c", code])?,
        "3"
    );
    let message = create("other", "shapes==2.0")?;
    let message = String::from_utf8_lossy(&message.stderr).into_owned();
    assert!(
        message.contains("`shapes==2.0` is not found: the index has no such version"),
        "{message}"
    );
    Ok(())
}

fn index_password_stays_outside_the_sandbox() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let url = format!("http://me:p%40ss@127.0.0.1:{}/secret/simple", scene.port);
    scene.printed(&["env", "create", "private", "colours", "--index-url", &url])?;
    let kept = Command::new("grep")
        .args(["-rl", "p@ss\\|p%40ss"])
        .arg(scene.data.path())
        .output()?;
    assert_eq!(String::from_utf8(kept.stdout)?, "");
    let wrong = url.replace("p%40ss", "wrong");
    let message = scene.refused(&["env", "create", "other", "shapes", "--index-url", &wrong])?;
    assert!(
        message.contains("401") && !message.contains("wrong"),
        "{message}"
    );
    Ok(())
}

fn concurrent_creations_make_one_environment() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let begin = || {
        scene
            .command(&["env", "create", "shared", "shapes", "--json"])
            .spawn()
    };
    let children: Vec<Child> = (0..3).map(|_| begin()).collect::<Result<_, _>>()?;
    let mut results = Vec::new();
    for child in children {
        let output = child.wait_with_output()?;
        assert!(output.status.success(), "{output:?}");
        let made: serde_json::Value = serde_json::from_slice(&output.stdout)?;
        results.push(made["result"].as_str().unwrap_or_default().to_owned());
    }
    results.sort();
    assert_eq!(results, ["created", "there", "there"]);
    assert_eq!(scene.counts(), [1, 1, 0]);
    Ok(())
}

fn interrupted_creation_leaves_nothing() -> Result<(), Failed> {
    let scene = Scene::new()?;
    for (ended_by, left, code) in [
        (Signal::SIGINT, 0, Some(130)),
        (Signal::SIGTERM, 0, Some(130)),
        (Signal::SIGKILL, 1, None),
    ] {
        let child = scene
            .command(&["env", "create", "slow", "colours", "slow"])
            .spawn()?;
        let deadline = Instant::now() + Duration::from_secs(60);
        // The installation has begun, and waits for a wheel that the index withholds.
        while scene.counts()[2] == 0 {
            assert!(Instant::now() < deadline, "it has not begun");
            std::thread::sleep(Duration::from_millis(10));
        }
        signal(&child, ended_by);
        let output = child.wait_with_output()?;
        assert_eq!(output.status.code(), code, "{output:?}");
        if left == 0 {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(
                message.contains("interrupted; nothing was installed"),
                "{message}"
            );
        }
        assert_eq!(scene.counts(), [0, 0, left], "{ended_by}");
    }
    // The next command removes what a killed one left.
    scene.printed(&["env", "create", "shapes", "shapes"])?;
    assert_eq!(scene.counts(), [1, 1, 0]);
    Ok(())
}

fn killed_installation_is_reported() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let set = "python.packages=[\"slow\", \"colours\"]";
    let create = ["--set", set, "--set", "environments.create=true"];
    let run = [&["run"], &create[..], &["-c", ""]].concat();
    let child = scene.command(&run).spawn()?;
    let deadline = Instant::now() + Duration::from_secs(60);
    while scene.counts()[2] == 0 {
        assert!(Instant::now() < deadline, "it has not begun");
        std::thread::sleep(Duration::from_millis(10));
    }
    let installs = *descendants(child.id()).first().ok_or("a child")?;
    kill(Pid::from_raw(installs.cast_signed()), Signal::SIGKILL)?;
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(125), "{output:?}");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        message.contains("was ended by signal 9 (SIGKILL)"),
        "{message}"
    );
    Ok(())
}

fn supervisor_stops_installing_after_a_disconnect() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let kind = (AddressFamily::Unix, SockType::SeqPacket);
    let (control, theirs) = socketpair(kind.0, kind.1, None, SockFlag::SOCK_CLOEXEC)?;
    // A shell starts the supervisor: programs of concurrent tests would otherwise inherit an open socket to it.
    let serve = "exec \"$0\" serve --control-fd 3 3<&0 </dev/null";
    let mut shell = scene.with_variables(Command::new("sh"));
    shell.args(["-c", serve, env!("CARGO_BIN_EXE_sandfork")]);
    let mut supervisor = shell.stdin(theirs).spawn()?;
    // The `Command` holds the supervisor's end of the socket too.
    drop(shell);
    let open = serde_json::json!({
        "kind": "open",
        "version": VERSION,
        "policy": { "name": "standard" },
        "set": ["python.packages=[\"slow\", \"colours\"]", "environments.create=true"],
    });
    let open = open.to_string();
    let mut connections = Vec::new();
    // One client installs, and the other waits for the same environment.
    for _ in 0..2 {
        let (mut ours, theirs) = UnixStream::pair()?;
        send(control.as_fd(), b"c", &[theirs.as_fd()])?;
        ours.write_all(&u32::try_from(open.len())?.to_le_bytes())?;
        ours.write_all(&0_u32.to_le_bytes())?;
        ours.write_all(open.as_bytes())?;
        connections.push(ours);
    }
    let deadline = Instant::now() + Duration::from_secs(300);
    let sleep = || {
        assert!(Instant::now() < deadline, "it does not come so far");
        std::thread::sleep(Duration::from_millis(10));
    };
    while scene.counts()[2] == 0 {
        sleep();
    }
    // Programs that the supervisor starts do not inherit its client's socket.
    let socket = fs::read_to_string(format!("/proc/{}/fdinfo/3", supervisor.id()))?;
    let flags = socket.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = i32::from_str_radix(flags.ok_or("no flags")?.trim(), 8)?;
    assert_eq!(flags & libc::O_CLOEXEC, libc::O_CLOEXEC);
    drop((control, connections));
    while supervisor.try_wait()?.is_none() {
        sleep();
    }
    assert_eq!(scene.counts(), [0, 0, 0]);
    Ok(())
}

fn policy_packages_are_installed() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let policy = scene.data.path().join("tenant.toml");
    fs::write(
        &policy,
        "[python]\npackages = [\"shapes==1.*\", \"colours\"]\n",
    )?;
    let policy = policy.display().to_string();
    let code = "import shapes; print(shapes.sides)";
    let message = scene.refused(&["run", "--policy", &policy, "-c", code])?;
    assert!(
        message.starts_with("the packages shapes==1.*, colours are not installed for /"),
        "{message}"
    );
    let quoted: Vec<&str> = message.split('`').collect();
    assert_eq!(message, scene.refused(&["plan", "--policy", &policy])?);
    assert_eq!(scene.counts(), [0, 0, 0]);
    // The command that the message suggests creates the environment.
    let line = quoted[1].replacen("sandfork", env!("CARGO_BIN_EXE_sandfork"), 1);
    let mut shell = scene.with_variables(Command::new("sh"));
    let output = shell.args(["-c", &line]).output()?;
    assert!(output.status.success(), "{line}: {output:?}");
    assert_eq!(
        scene.printed(&["run", "--policy", &policy, "-c", code])?,
        "3"
    );
    assert_eq!(scene.counts(), [1, 1, 0]);
    scene.printed(&["env", "prune"])?;
    assert_eq!(scene.counts(), [1, 1, 0]);
    let pruned = scene.printed(&["env", "prune", "--packages"])?;
    assert!(pruned.starts_with("removed 1 environment, "), "{pruned}");
    assert_eq!(scene.counts(), [0, 0, 0]);
    // With the setting, the first use creates the environment.
    let created = [
        "run",
        "--policy",
        &policy,
        "--set",
        "environments.create=true",
        "-c",
        code,
    ];
    assert_eq!(scene.printed(&created)?, "3");
    assert_eq!(scene.counts(), [1, 1, 0]);
    let plan = scene.printed(&["plan", "--policy", &policy, "--json"])?;
    let plan: serde_json::Value = serde_json::from_str(&plan)?;
    let environment = plan["interpreter"]["environment"]
        .as_str()
        .unwrap_or_default();
    assert!(
        environment.starts_with(&scene.store().display().to_string()),
        "{plan}"
    );
    Ok(())
}

fn packages_are_added_to_a_running_session() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let sandbox = scene.sandbox("environments.add=true")?;
    let mut session = sandbox.session()?;
    let mut other = sandbox.session()?;
    let code = "import shapes; shapes.sides";
    assert_eq!(session.run(code)?.outcome().value(), None);
    session.install(&["shapes==1.0"])?;
    assert_eq!(session.run(code)?.outcome().value(), Some(&3.into()));
    assert_eq!(other.run(code)?.outcome().value(), None);
    session.install(&["shapes==1.0", "colours"])?;
    for (packages, kind, expected) in [
        (&["absent"][..], ErrorKind::Request, "`absent` is not found"),
        (
            &["six @ x"],
            ErrorKind::Request,
            "\"six @ x\" is not a package",
        ),
        (&[], ErrorKind::Request, "an environment needs a package"),
        // Another version of a package that was added before.
        (
            &["shapes==2.0"],
            ErrorKind::Request,
            "Cannot install shapes==2.0",
        ),
    ] {
        let error = session.install(packages).expect_err("refused");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(expected), "{error}");
    }
    // The added version satisfies the request.
    session.install(&["shapes"])?;
    assert_eq!(session.run(code)?.outcome().value(), Some(&3.into()));
    // A guest that breaks its own interpreter gets an error, and other sessions are unaffected.
    session.run("import site; site.addsitedir = None; import sys; del sys.path[-2:]")?;
    let error = session.install(&["shapes==1.0"]).expect_err("refused");
    let expected = "the session cannot use the packages: 'NoneType' object is not callable";
    assert_eq!(error.to_string(), expected);
    other.install(&["shapes==1.0"])?;
    assert_eq!(other.run(code)?.outcome().value(), Some(&3.into()));
    drop((session, other));
    let mut session = scene.sandbox("environments.add=false")?.session()?;
    let error = session.install(&["shapes"]).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "no packages can be added to this session: open it with `environments.add = true` in its policy"
    );
    Ok(())
}

fn a_source_distribution_is_built_in_a_sandbox() -> Result<(), Failed> {
    let mut scene = Scene::new()?;
    // In a directory whose path must be percent-encoded in a URL.
    scene.data = tempfile::Builder::new()
        .prefix("a place \u{e0} ")
        .tempdir_in("/var/tmp")?;
    let secret = tempfile::Builder::new()
        .prefix("sandfork-test-secret")
        .rand_bytes(0)
        .tempfile_in("/tmp")?;
    scene.printed(&[
        "env",
        "create",
        "built",
        "source",
        "colours",
        "--allow-build",
    ])?;
    // The package's build code has run and found nothing of the host. `/tmp` is the sandbox's own.
    let code = "import source, colours; print(source.found)";
    let run = ["run", "--set", "python.environment=built", "-c", code];
    assert_eq!(scene.printed(&run)?, "['wrote']");
    assert!(!Path::new("/tmp/sandfork-test-built").exists());
    drop(secret);
    let lock = scene.printed(&["env", "export", "built"])?;
    assert!(
        lock.contains("[packages.sdist]\nname = \"source-1.0.tar.gz\"\n"),
        "{lock}"
    );
    assert_eq!(scene.counts(), [1, 1, 0]);
    for (package, expected) in [
        (
            "failing",
            "the packages cannot be installed: pip says: Failed building wheel for failing; its last lines: ",
        ),
        // It would replace another package.
        ("renamed", "the packages cannot be installed: pip says: "),
    ] {
        let message = scene.refused(&["env", "create", "other", package, "--allow-build"])?;
        assert!(message.contains(expected), "{message}");
        assert_eq!(scene.counts(), [1, 1, 0], "{package}");
    }
    Ok(())
}

fn an_environment_in_use_is_not_removed() -> Result<(), Failed> {
    let scene = Scene::new()?;
    scene.printed(&["env", "create", "used", "colours"])?;
    let code = "import sys; print('runs', flush=True); sys.stdin.read(); import colours; print(colours.red)";
    let mut child = scene
        .command(&[
            "run",
            "-i",
            "--set",
            "limits.wall=1h",
            "--set",
            "python.environment=used",
            "-c",
            code,
        ])
        .stdin(Stdio::piped())
        .spawn()?;
    let mut stdout = BufReader::new(child.stdout.take().ok_or("no pipe")?);
    let mut line = String::new();
    stdout.read_line(&mut line)?;
    assert_eq!(line, "runs\n");
    let message = scene.refused(&["env", "remove", "used"])?;
    assert_eq!(
        message,
        "the environment `used` is used by a sandbox, or kept by a process for its next one: end it first"
    );
    drop(child.stdin.take());
    stdout.read_line(&mut line)?;
    assert_eq!(line, "runs\nff0000\n");
    child.wait()?;
    scene.printed(&["env", "remove", "used"])?;
    assert_eq!(scene.counts(), [0, 0, 0]);
    Ok(())
}

fn guest_cannot_change_an_environment() -> Result<(), Failed> {
    let scene = Scene::new()?;
    scene.printed(&["env", "create", "kept", "colours"])?;
    // The directory belongs to the user who runs the guest: outside the sandbox, the same code changes the file.
    let code = "import colours, os, sys
for act in (lambda: open(colours.__file__, 'a'), lambda: os.chmod(colours.__file__, 0o666),
            lambda: os.unlink(colours.__file__), lambda: os.mkdir(sys.prefix + '/new')):
    try:
        act()
        print('changed')
    except OSError:
        pass";
    assert_eq!(
        scene.printed(&["run", "--set", "python.environment=kept", "-c", code])?,
        ""
    );
    let place = scene.data.path().display().to_string();
    for path in [
        place.clone(),
        format!("{place}/sandfork/environments/store"),
    ] {
        let message = scene.refused(&[
            "run",
            "--set",
            &format!("filesystem.write={path}"),
            "-c",
            "pass",
        ])?;
        assert!(message.contains("cannot be writable, because"), "{message}");
    }
    Ok(())
}

fn startup_code_of_packages_is_confined() -> Result<(), Failed> {
    let scene = Scene::new()?;
    scene.printed(&["env", "create", "other", "colours"])?;
    scene.printed(&["env", "create", "hostile", "hostile"])?;
    let code = "import hostile, sys; print(sys.prefix); print(hostile.found)";
    let printed = scene.printed(&["run", "--set", "python.environment=hostile", "-c", code])?;
    let (prefix, found) = printed.split_once('\n').ok_or("two lines")?;
    assert_eq!(found, "[]");
    // Outside the sandbox, the same code finds everything, except what the directory's mode denies its owner.
    let mut outside = Command::new(Path::new(prefix).join("bin/python"));
    let outside = outside.args(["-c", "import hostile; print(hostile.found[:3])"]);
    let message = String::from_utf8_lossy(&outside.output()?.stdout).into_owned();
    assert_eq!(
        message.trim(),
        "['another environment', 'the names of all', 'a socket']"
    );
    Ok(())
}

fn store_of_another_user_is_rejected() -> Result<(), Failed> {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let scene = Scene::new()?;
    scene.printed(&["env", "create", "kept", "colours"])?;
    let refused = |why: &str| -> Result<(), Failed> {
        for arguments in [
            &["run", "--set", "python.environment=kept", "-c", "pass"][..],
            &["env", "create", "new", "shapes"],
            &["env", "show", "kept"],
        ] {
            let message = scene.refused(arguments)?;
            assert!(message.contains(why), "{message}");
        }
        Ok(())
    };
    fs::set_permissions(scene.store(), fs::Permissions::from_mode(0o777))?;
    refused("can be written by others, who could change environments in it")?;
    fs::set_permissions(scene.store(), fs::Permissions::from_mode(0o700))?;
    let moved = scene.store().with_extension("moved");
    fs::rename(scene.store(), &moved)?;
    symlink(&moved, scene.store())?;
    refused("is a symbolic link, and environments need a directory")
}

fn damaged_environment_is_reported_in_the_list() -> Result<(), Failed> {
    let scene = Scene::new()?;
    scene.printed(&["env", "create", "kept", "colours"])?;
    scene.printed(&["env", "create", "torn", "shapes"])?;
    let shown: serde_json::Value =
        serde_json::from_str(&scene.printed(&["env", "show", "torn", "--json"])?)?;
    let torn = Path::new(shown["path"].as_str().ok_or("a path")?).join("environment.json");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&torn, open)?;
    fs::write(&torn, "{")?;
    let listed: serde_json::Value =
        serde_json::from_str(&scene.printed(&["env", "list", "--json"])?)?;
    assert_eq!(listed[0]["packages"]["colours"], "1.5", "{listed}");
    let error = listed[1]["error"].as_str().ok_or("an error")?;
    assert!(
        error.contains("is not what Sandfork wrote there"),
        "{error}"
    );
    Ok(())
}

fn invalid_input_is_reported() -> Result<(), Failed> {
    let scene = Scene::new()?;
    let refusals = [
        (
            &["env", "create", "a b", "six"][..],
            "\"a b\" is not the name of an environment: use at most 64",
        ),
        (
            &["env", "create", "x", "six @ https://x/y.whl"],
            "\"six @ https://x/y.whl\" is not a package: write its name",
        ),
        (
            &["env", "create", "x"],
            "an environment needs a package: name one, or a file with `-r` or `--lock`",
        ),
        (
            &["env", "create", "packages-0", "six"],
            "names that begin with `packages-` belong to the packages of policies",
        ),
        (
            &["env", "create", "x", "six", "--python", "/nowhere"],
            "the interpreter /nowhere cannot be found",
        ),
        (
            &[
                "env",
                "create",
                "x",
                "six",
                "--index-url",
                "ftp://me:secret@x/",
            ],
            "pip's `index-url` names `x/`, which is neither an http or https URL",
        ),
        (
            &["env", "create", "x", "-r", "/nowhere.txt"],
            "/nowhere.txt: No such file or directory",
        ),
        (
            &["env", "show", "x"],
            "there is no environment `x`: no environment has a name\n",
        ),
        (
            &["env", "remove", "x"],
            "there is no environment `x`: no environment has a name\n",
        ),
        (
            &["run", "--set", "python.environment=x", "-c", ""],
            "there is no environment `x`: make it with `sandfork env create x PACKAGE...`",
        ),
        (
            &["run", "--set", "python.environment=X", "-c", ""],
            "--set: python.environment: \"X\" is not the name of an environment",
        ),
        (
            &[
                "run",
                "--set",
                "python.environment=x",
                "--set",
                "python.packages=six",
                "-c",
                "",
            ],
            "--set: python.packages: \"six\" is a package here, and --set names the environment \"x\", which has packages of its own",
        ),
    ];
    let codes: BTreeSet<Option<i32>> = refusals
        .iter()
        .map(|(arguments, expected)| {
            let output = scene.run(arguments)?;
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            let is_expected = message.starts_with(&format!("sandfork: {expected}"));
            assert!(is_expected, "{arguments:?}: {message}");
            assert_eq!(message.lines().count(), 1, "{message}");
            Ok::<_, Failed>(output.status.code())
        })
        .collect::<Result<_, _>>()?;
    assert_eq!(codes, BTreeSet::from([Some(2), Some(125)]));
    // A file in place of a name is an error and names no environment.
    scene.printed(&["env", "create", "kept", "colours"])?;
    for command in ["show", "export", "remove"] {
        let message = scene.refused(&["env", command, "x"])?;
        let expected =
            "there is no environment `x`: there is kept; `sandfork env list` describes them";
        assert_eq!(message, expected, "{command}");
    }
    let name = scene.store().join("names/kept");
    for (text, expected) in [
        ("nonsense", "is not what Sandfork wrote there"),
        (
            "{\"environment\":\"../../etc\",\"requirements\":[],\"interpreter\":\"/\"}",
            "it does not name an environment",
        ),
    ] {
        fs::remove_file(&name)?;
        fs::write(&name, text)?;
        let message = scene.refused(&["run", "--set", "python.environment=kept", "-c", "pass"])?;
        assert!(message.contains(expected), "{message}");
    }
    Ok(())
}
