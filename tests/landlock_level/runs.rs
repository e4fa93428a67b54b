//! Runs the `sandfork` command, and Python without it, on the simulated host.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use serde_json::Value;
use tempfile::TempDir;

use crate::situation::{self, Who};

/// An interpreter that every user can execute.
pub const PYTHON: &str = "/usr/bin/python3";

/// Settings for a guest that ends by itself, however slow the machine is.
pub const PATIENT: [&str; 2] = ["limits.wall=5m", "limits.cpu=5m"];

/// The simulated host of one test, with its own directories.
pub struct Host {
    pub who: Who,
    dir: TempDir,
}

impl Host {
    pub fn new(who: Who) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let open = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
        };
        open(dir.path(), 0o755);
        let host = Self { who, dir };
        fs::create_dir(host.tmp()).expect("mkdir");
        open(&host.tmp(), 0o1777);
        fs::create_dir(host.home()).expect("mkdir");
        chown(host.home(), Some(who.uid()), None).expect("chown");
        host
    }

    /// Returns the supervisor's `TMPDIR`.
    pub fn tmp(&self) -> PathBuf {
        self.dir.path().join("tmp")
    }

    /// Returns a directory of the user that no guest may see.
    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// Returns what supervisors have left behind.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.tmp()).expect("the directory can be read");
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect()
    }

    /// Returns the command that starts a program on the simulated host.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new(own_path());
        command
            .arg(situation::FLAG)
            .arg(self.who.name())
            .arg(program.as_ref())
            .env("TMPDIR", self.tmp())
            .current_dir(self.home())
            .stdin(Stdio::null());
        command
    }

    /// Returns a `sandfork` command on the simulated host, with a policy that accepts level `landlock`.
    pub fn sandfork(&self, subcommand: &str, settings: &[&str]) -> Command {
        let sandfork = reachable(Path::new(env!("CARGO_BIN_EXE_sandfork")));
        let mut command = self.command(sandfork);
        command.arg(subcommand);
        let interpreter = format!("python.interpreter={PYTHON}");
        for setting in ["assurance.require=landlock", &interpreter]
            .iter()
            .chain(settings)
        {
            command.args(["--set", setting]);
        }
        command
    }

    /// Returns the command that starts this test binary on the simulated host, as one of its helpers.
    pub fn this_test(&self, flag: &str) -> Command {
        let mut command = self.command(reachable(&own_path()));
        command.arg(flag);
        command
    }

    /// Runs code in a sandbox and returns its outcome.
    pub fn run(&self, settings: &[&str], code: &str) -> Value {
        outcome(self.sandfork("run", settings).args(["--json", "-c", code]))
    }
}

/// Copies a program to where every user can execute it: only the owner may be able to enter the checkout.
fn reachable(program: &Path) -> PathBuf {
    static COPIES: OnceLock<TempDir> = OnceLock::new();
    static COPYING: Mutex<()> = Mutex::new(());
    let copies = COPIES.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
        dir
    });
    let copy = copies
        .path()
        .join(program.file_name().expect("a program has a name"));
    let _one_at_a_time = COPYING.lock().unwrap_or_else(PoisonError::into_inner);
    if !copy.exists() {
        fs::copy(program, &copy).expect("the program can be copied");
    }
    copy
}

fn own_path() -> PathBuf {
    std::env::current_exe().expect("the test's own path")
}

/// Parses the JSON outcome that a run prints.
pub fn outcome(command: &mut Command) -> Value {
    let Output { stdout, stderr, .. } = command.output().expect("the command runs");
    serde_json::from_slice(&stdout).unwrap_or_else(|error| {
        panic!("no outcome ({error}): {}", String::from_utf8_lossy(&stderr))
    })
}

/// A process that is killed at the end of the test.
pub struct Running(pub Child);

impl Running {
    pub fn start(command: &mut Command) -> Self {
        Self(command.spawn().expect("the command runs"))
    }

    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a pid")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

/// Writes a world-readable file.
pub fn write(path: &Path, text: &str) {
    let mut file = fs::File::create(path).expect("the file is created");
    file.write_all(text.as_bytes())
        .expect("the file can be written");
}
