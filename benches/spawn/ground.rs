//! The test bed: the interpreter, the environments made for it, and the machine.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use sandfork::Sandbox;
use sandfork::internals::host::{CallerEnvironment, Interpreter, probe_interpreter};
use sandfork::internals::outcome::Enforced;
use serde::Deserialize;

use crate::Options;
use crate::common::policy;
use crate::contestant;

/// Facts about the test bed.
pub struct Ground {
    pub python: PathBuf,
    pub version: (u8, u8, u8),
    /// The installation directory of the interpreter.
    pub installation: PathBuf,
    /// The `python3` on PATH, if it is another interpreter.
    pub other_python: Option<PathBuf>,
    pub environments: Environments,
    /// The layers that were verified for a sandbox.
    pub enforced: Enforced,
    pub kernel: String,
    pub processors: usize,
    /// The load average over the last minute before the first round (proc(5)).
    pub load: f64,
}

/// Interpreters with packages, which `cargo xtask bench` made from one interpreter.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Environments {
    executable: PathBuf,
    /// The interpreter with numpy and pandas.
    pub modules: Option<PathBuf>,
    pub pyperformance: Option<PathBuf>,
    pub sandlock: Option<PathBuf>,
}

/// The system's interpreter, which most users have: the speed of a self-built one depends on its
/// build.
const OF_THE_SYSTEM: &str = "/usr/bin/python3";

impl Ground {
    pub fn survey(options: &Options) -> Result<Self> {
        let load = load();
        let interpreter = interpreter(options)?;
        let policy = policy(&interpreter.executable, &[])?;
        let sandbox = Sandbox::builder().policy(policy).ready(0).build()?;
        let enforced = contestant::run(&sandbox)?.enforced().clone();
        let on_path = ask(Path::new("python3")).ok();
        let other_python = on_path.filter(|other| other.binary != interpreter.binary);
        Ok(Self {
            environments: Environments::of(&interpreter),
            python: interpreter.executable,
            version: interpreter.version,
            installation: interpreter.base_prefix,
            other_python: other_python.map(|other| other.executable),
            enforced,
            kernel: first_line("/proc/sys/kernel/osrelease"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            load,
        })
    }

    pub fn version_text(&self) -> String {
        let (major, minor, patch) = self.version;
        format!("{major}.{minor}.{patch}")
    }

    /// Returns the interpreter itself if it has these modules, or the environment that has them.
    pub fn python_with(&self, modules: &[&str]) -> Option<PathBuf> {
        let candidates = [Some(&self.python), self.environments.modules.as_ref()];
        let mut candidates = candidates.into_iter().flatten();
        candidates
            .find(|python| has_modules(python, modules))
            .cloned()
    }
}

/// Returns the given interpreter, or the system's if Sandfork accepts it, or `python3`.
fn interpreter(options: &Options) -> Result<Interpreter> {
    if let Some(named) = &options.python {
        return ask(named);
    }
    ask(Path::new(OF_THE_SYSTEM)).or_else(|_| ask(Path::new("python3")))
}

fn ask(python: &Path) -> Result<Interpreter> {
    let environment = CallerEnvironment::current();
    let found = sandfork::internals::host::resolve_interpreter(
        &python.display().to_string(),
        &environment,
    )?;
    Ok(probe_interpreter(&found, &environment)?)
}

impl Environments {
    /// Returns the environments of this interpreter, if `cargo xtask bench` made them.
    fn of(interpreter: &Interpreter) -> Self {
        let file = fs::read(target_directory().join("bench/environments.json"));
        let made: Self = serde_json::from_slice(&file.unwrap_or_default()).unwrap_or_default();
        let is_ours = fs::canonicalize(&made.executable).is_ok_and(|it| it == interpreter.binary);
        if is_ours { made } else { Self::default() }
    }
}

fn has_modules(python: &Path, modules: &[&str]) -> bool {
    let mut command = std::process::Command::new(python);
    command.arg("-c").arg("import importlib.util, sys\nsys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))");
    let output = command.args(modules).output();
    output.is_ok_and(|output| output.status.success())
}

/// Returns Cargo's target directory.
pub fn target_directory() -> &'static Path {
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    temporary.parent().unwrap_or(temporary)
}

fn load() -> f64 {
    let line = first_line("/proc/loadavg");
    let field = line.split(' ').next().and_then(|field| field.parse().ok());
    field.unwrap_or(f64::NAN)
}

fn first_line(path: &str) -> String {
    fs::read_to_string(path)
        .unwrap_or_default()
        .trim()
        .to_owned()
}
