//! State that all tests of one process share: users, bait, the binary under test and run directories.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::RwLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use tempfile::TempDir;

use crate::account::{Account, User};
use crate::bait::Bait;
use crate::control::Controls;
use crate::doctor::Doctor;
use crate::probe::Probe;

const SCRIPTS: [(&str, &str); 9] = [
    ("bait.py", include_str!("open/bait.py")),
    (
        "modules/drawn_before.py",
        include_str!("open/modules/drawn_before.py"),
    ),
    (
        "modules/hostile_before.py",
        include_str!("open/modules/hostile_before.py"),
    ),
    (
        "modules/shared_before.py",
        include_str!("open/modules/shared_before.py"),
    ),
    ("naive_host.py", include_str!("open/naive_host.py")),
    ("naive_runner.py", include_str!("open/naive_runner.py")),
    ("naive_tenants.py", include_str!("open/naive_tenants.py")),
    ("pty.py", include_str!("open/pty.py")),
    ("terminal.py", include_str!("open/terminal.py")),
];

/// The directory of the modules that a zygote preloads.
pub const MODULES: &str = "modules";

/// The environment variable that names the binary to attack, instead of the one that Cargo built.
const BINARY: &str = "SANDFORK_ESCAPE_BINARY";

pub struct World {
    // Fields are dropped in this order: the bait before the directory that contains it.
    parties: Vec<Party>,
    pub controls: Controls,
    /// Write-locked by an attempt that measures the CPUs.
    pub quiet: RwLock<()>,
    /// The binary under test.
    pub sandfork: PathBuf,
    /// This test binary.
    pub escape: PathBuf,
    runs: AtomicUsize,
    scratch: TempDir,
}

/// One user with its bait.
pub struct Party {
    pub account: Account,
    pub bait: Bait,
    pub doctor: Doctor,
}

/// The directories of one run, or of consecutive runs.
pub struct RunDirectory {
    pub programs: PathBuf,
    /// The launcher's working directory: empty, owned by the user, next to a sibling that holds a secret.
    pub work: PathBuf,
}

impl World {
    pub fn new() -> Result<Self, String> {
        // Not in /tmp: a sandbox mounts its own file system there, which would hide a leak.
        let parent = Path::new("/var/tmp");
        let scratch = tempfile::Builder::new()
            .prefix("sandfork-escape-")
            .tempdir_in(parent);
        let scratch = scratch.map_err(|error| format!("{}: {error}", parent.display()))?;
        let path = scratch.path();
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(wrap(path))?;
        fs::create_dir(path.join(MODULES)).map_err(wrap(path))?;
        for (name, text) in SCRIPTS {
            fs::write(path.join(name), text).map_err(wrap(path))?;
        }
        // The checkout may be in a home directory that the ordinary user cannot enter.
        let sandfork = path.join("sandfork");
        let built = std::env::var_os(BINARY).map(PathBuf::from);
        let built = built.unwrap_or_else(|| env!("CARGO_BIN_EXE_sandfork").into());
        fs::copy(&built, &sandfork).map_err(wrap(&built))?;
        let escape = path.join("escape");
        let this = std::env::current_exe().map_err(wrap(&escape))?;
        fs::copy(&this, &escape).map_err(wrap(&this))?;
        let mut parties = Vec::new();
        for user in User::all() {
            let account = Account::new(user, path)?;
            let bait = Bait::start(&account, path, path)?;
            let doctor = Doctor::query(&account, &sandfork);
            parties.push(Party {
                account,
                bait,
                doctor,
            });
        }
        Ok(Self {
            parties,
            controls: Controls::default(),
            quiet: RwLock::new(()),
            sandfork,
            escape,
            runs: AtomicUsize::new(0),
            scratch,
        })
    }

    pub fn party(&self, user: User) -> Option<&Party> {
        self.parties.iter().find(|party| party.account.user == user)
    }

    /// Returns the path of a helper script of the open controls.
    pub fn script(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    pub fn run_directory(&self, account: &Account) -> Result<RunDirectory, String> {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let programs = self.scratch.path().join(format!("run-{number}"));
        let parent = programs.join("launched-from");
        fs::create_dir(&programs).map_err(wrap(&programs))?;
        fs::create_dir(&parent).map_err(wrap(&parent))?;
        let work = parent.join("work");
        account.own_directory(&work)?;
        let sibling = parent.join("sibling");
        fs::create_dir(&sibling).map_err(wrap(&sibling))?;
        let secret = sibling.join("sibling_secret");
        fs::write(&secret, "CANARY sibling").map_err(wrap(&secret))?;
        Ok(RunDirectory { programs, work })
    }
}

impl RunDirectory {
    /// Writes the program of the probe's run number `run` and returns its path.
    pub fn program(
        &self,
        probe: &Probe,
        party: &Party,
        run: usize,
        previous: &str,
    ) -> Result<PathBuf, String> {
        let mut variables = party.bait.variables.clone();
        variables.extend(profile(previous));
        variables.insert("RUN".to_owned(), run.to_string());
        let path = self.programs.join(format!("{}-{run}.py", probe.header.id));
        fs::write(&path, probe.program(&variables)).map_err(wrap(&path))?;
        Ok(path)
    }
}

/// Returns the variables that tell a probe the limits of the test profile and amounts that exceed them.
fn profile(previous: &str) -> BTreeMap<String, String> {
    let variables = [
        ("TIME_LIMIT", "1"),
        ("CPU_LIMIT", "1"),
        ("CPUS", "1"),
        ("MEM_MB", "320"),
        ("INODES", "20000"),
        ("NPROC", "200"),
        ("PREV", previous),
    ];
    variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
}

/// Returns the `VALUE` that a run leaves for the next one.
pub fn value_of(output: &str) -> String {
    let value = output.lines().find_map(|line| line.strip_prefix("VALUE "));
    value.unwrap_or_default().to_owned()
}

fn wrap(path: &Path) -> impl Fn(std::io::Error) -> String {
    let path = path.display().to_string();
    move |error| format!("{path}: {error}")
}
