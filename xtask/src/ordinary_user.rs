//! An ordinary user without a name, without groups, with an empty home directory. The programs that it runs
//! are copied to a readable directory, because the checkout may be in a directory that it cannot enter.

use std::env;
use std::fmt;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;
use xshell::{Shell, cmd};

use crate::test_envs::{TestEnv, TestEnvs};

/// The first id to try: above the range of useradd(8), and below the ids of
/// systemd's dynamic users.
const FIRST_ID: u32 = 60_600;

/// The user, and the directory with its programs.
pub struct OrdinaryUser {
    id: u32,
    interpreters: usize,
    directory: TempDir,
}

impl OrdinaryUser {
    /// Finds a free id and copies the environments whose interpreter that user can execute.
    pub fn prepare(envs: &TestEnvs) -> Result<Self> {
        // Not in /tmp, where a sandbox has its own directory, so that no interpreter there can be
        // mounted.
        let directory = tempfile::Builder::new()
            .prefix("sandfork-test-")
            .tempdir_in("/var/tmp")?;
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755))?;
        let mut user = Self {
            id: free_id()?,
            interpreters: 0,
            directory,
        };
        let home = user.path("home");
        fs::create_dir(&home)?;
        fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
        chown(&home, Some(user.id), Some(user.id))?;
        user.take_envs(envs)?;
        Ok(user)
    }

    fn take_envs(&mut self, envs: &TestEnvs) -> Result<()> {
        let (sh, root) = (Shell::new()?, self.path("test-envs"));
        sh.create_dir(&root)?;
        let mut taken = TestEnvs {
            envs: Vec::new(),
            too_old: envs.too_old.clone(),
            // The kernel tests run only guests.
            client: None,
        };
        taken
            .too_old
            .retain(|old| self.can_execute(&old.executable));
        for TestEnv {
            interpreter,
            directory,
        } in &envs.envs
        {
            if self.can_execute(&interpreter.executable) {
                let copy = root.join(format!("cpython-{}", interpreter.version_text()));
                // Hard links, if the copy is on the same file system.
                let link = cmd!(sh, "cp --archive --link -T {directory} {copy}").quiet();
                if link.ignore_stderr().run().is_err() {
                    cmd!(sh, "cp --archive -T {directory} {copy}")
                        .quiet()
                        .run()?;
                }
                taken.envs.push(TestEnv {
                    interpreter: interpreter.clone(),
                    directory: copy,
                });
            }
        }
        ensure!(
            !taken.envs.is_empty(),
            "no CPython 3.9 or later can be executed by an ordinary user: install one for all users, such \
             as /usr/bin/python3 (`apt install python3 python3-venv`)"
        );
        self.interpreters = taken.envs.len();
        taken.write_manifest(&root)
    }

    fn can_execute(&self, interpreter: &Path) -> bool {
        let mut trial = self.bare_command(interpreter);
        trial
            .args(["-I", "-c", "pass"])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        trial.status().is_ok_and(|status| status.success())
    }

    /// Returns a command that runs a copy of this program.
    pub fn command(&self, program: &Path) -> Result<Command> {
        let name = program.file_name().context("a program without a name")?;
        let copy = self.path("").join(name);
        fs::copy(program, &copy)?;
        let mut command = self.bare_command(&copy);
        command.env("SANDFORK_TEST_ENVS", self.path("test-envs"));
        for passed in ["CI", "SANDFORK_FORBID_SKIPS", "RUST_BACKTRACE"] {
            if let Some(value) = env::var_os(passed) {
                command.env(passed, value);
            }
        }
        Ok(command)
    }

    fn bare_command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let home = self.path("home");
        // Setting the uid also drops the supplementary groups.
        command.uid(self.id).gid(self.id).current_dir(&home);
        command
            .env_clear()
            .env("HOME", &home)
            .env("LANG", "C.UTF-8");
        command.env("PATH", env::var_os("PATH").unwrap_or_default());
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }
}

impl fmt::Display for OrdinaryUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "uid {}, {} interpreters that it can execute",
            self.id, self.interpreters
        )
    }
}

/// Returns an id without an account and without processes, so that nothing else counts towards its limits.
fn free_id() -> Result<u32> {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let mut taken: Vec<u32> = accounts
        .lines()
        .filter_map(|line| line.split(':').nth(2)?.parse().ok())
        .collect();
    let processes = fs::read_dir("/proc")?.flatten();
    taken.extend(processes.filter_map(|entry| Some(entry.metadata().ok()?.uid())));
    (FIRST_ID..FIRST_ID + 100)
        .find(|id| !taken.contains(id))
        .context("no free uid")
}
