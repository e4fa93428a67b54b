//! The users that launch probes: root, if the harness runs as root, and an ordinary user.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::capture::capture;
use crate::probe::Launch;

/// An id without an entry in `/etc/passwd`, in no range that distributions allocate.
const ORDINARY_ID: u32 = 31_337;
/// A supplementary group, so that a sandbox that keeps supplementary groups is detected.
const EXTRA_GROUP: u32 = 31_338;
/// Makes the launcher a preferred target of the OOM killer. The guest must not undo this.
const RAISE_OOM_SCORE: &str = "echo 500 >/proc/self/oom_score_adj; exec \"$@\"";

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum User {
    Root,
    #[serde(rename = "user")]
    Ordinary,
}

impl User {
    /// The users that this process can become.
    pub fn all() -> Vec<Self> {
        if nix::unistd::geteuid().is_root() {
            vec![Self::Root, Self::Ordinary]
        } else {
            vec![Self::Ordinary]
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Ordinary => "user",
        }
    }
}

/// A user with an empty home directory and an interpreter that it may execute.
pub struct Account {
    pub user: User,
    pub home: PathBuf,
    pub python: PathBuf,
    /// The command prefix that switches to this user; empty if the harness already runs as it.
    become_user: Vec<String>,
}

impl Account {
    pub fn new(user: User, scratch: &Path) -> Result<Self, String> {
        let mut become_user = Vec::new();
        if nix::unistd::geteuid().is_root() {
            become_user = vec!["setpriv".to_owned(), format!("--groups={EXTRA_GROUP}")];
            if user == User::Ordinary {
                become_user.push(format!("--reuid={ORDINARY_ID}"));
                become_user.push(format!("--regid={ORDINARY_ID}"));
            }
        }
        let home = scratch.join(format!("home-{}", user.name()));
        let mut account = Self {
            user,
            home,
            python: PathBuf::new(),
            become_user,
        };
        account.own_directory(&account.home)?;
        account.python = account.find_python()?;
        Ok(account)
    }

    /// Creates an empty directory with mode 0700 that the user owns.
    pub fn own_directory(&self, path: &Path) -> Result<(), String> {
        let make = || {
            fs::create_dir(path)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
            if self.user == User::Ordinary && !self.become_user.is_empty() {
                chown(path, Some(ORDINARY_ID), Some(ORDINARY_ID))?;
            }
            Ok(())
        };
        make().map_err(|error: std::io::Error| format!("{}: {error}", path.display()))
    }

    /// Returns a command that runs `arguments` as this user, with the bait in its environment.
    pub fn command<S: AsRef<OsStr>>(&self, launch: Launch, arguments: &[S]) -> Command {
        let mut words: Vec<&OsStr> = self.become_user.iter().map(OsStr::new).collect();
        words.extend(["sh", "-c", RAISE_OOM_SCORE, "sh"].map(OsStr::new));
        let processor = first_processor();
        if launch == Launch::Pinned {
            words.extend(["taskset", "--cpu-list", &processor].map(OsStr::new));
        }
        words.extend(arguments.iter().map(AsRef::as_ref));
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .env_clear()
            .env("HOME", &self.home);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
            .env("LANG", "C.UTF-8")
            .env("BAIT_SECRET", "bait-secret");
        command
    }

    /// Returns the first `python3` that the user may execute: the real binary, not a shim.
    fn find_python(&self) -> Result<PathBuf, String> {
        let candidates = ["python3", "/usr/bin/python3", "/usr/local/bin/python3"];
        for candidate in candidates {
            let print = "import sys; print(sys.executable)";
            let found = capture(self.command(Launch::Plain, &[candidate, "-c", print]), "");
            let Ok(found) = found else { continue };
            if found.status.success() {
                return Ok(PathBuf::from(found.stdout.trim()));
            }
        }
        Err(format!(
            "none of {candidates:?} runs for the {}",
            self.user.name()
        ))
    }
}

/// Returns the number of the first CPU in the harness's affinity mask.
fn first_processor() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let digits = |c: char| !c.is_ascii_digit();
    list.unwrap_or("0")
        .trim()
        .split(digits)
        .next()
        .unwrap_or("0")
        .to_owned()
}
