//! The test bed: the interpreter, the environments that were made for it, and the machine.

use std::fs;
use std::path::{Path, PathBuf};

use sandfork::internals::host::{Interpreter, probe_interpreter};
use sandfork::{CallerEnvironment, Enforced, FileSystem, Override, Policy, Sandbox};
use serde_json::Value;

use crate::contestant::{self, Error};
use crate::options::Options;

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
    /// Before the first round: the number of runnable processes, averaged over the last minute
    /// (proc(5)).
    pub load: f64,
}

/// Interpreters with packages, which `cargo xtask` made from the one that is measured.
#[derive(Clone, Debug, Default)]
pub struct Environments {
    /// The interpreter with numpy and pandas.
    pub modules: Option<PathBuf>,
    /// The interpreter with pyperformance.
    pub programs: Option<PathBuf>,
    /// The interpreter with sandlock.
    pub sandlock: Option<PathBuf>,
}

/// The system's interpreter, which most users have: the speed of a self-built one depends on its
/// build.
const OF_THE_SYSTEM: &str = "/usr/bin/python3";

impl Ground {
    pub fn survey(options: &Options) -> Result<Self, Error> {
        let load = load();
        let interpreter = interpreter(options)?;
        let sandbox = sandbox_of(&interpreter.executable)?;
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

    /// The interpreter itself if it has these modules, or the environment that has them.
    pub fn python_with(&self, modules: &[&str]) -> Option<PathBuf> {
        let candidates = [Some(&self.python), self.environments.modules.as_ref()];
        let mut candidates = candidates.into_iter().flatten();
        candidates
            .find(|python| has_modules(python, modules))
            .cloned()
    }
}

/// The named interpreter, or the system's if Sandfork accepts it, or `python3`.
fn interpreter(options: &Options) -> Result<Interpreter, Error> {
    if let Some(named) = &options.python {
        return ask(named);
    }
    ask(Path::new(OF_THE_SYSTEM)).or_else(|_| ask(Path::new("python3")))
}

fn ask(python: &Path) -> Result<Interpreter, Error> {
    let environment = CallerEnvironment::current();
    let found = sandfork::internals::host::resolve_interpreter(
        &python.display().to_string(),
        &environment,
    )?;
    Ok(probe_interpreter(&found, &environment)?)
}

fn sandbox_of(python: &Path) -> Result<Sandbox, Error> {
    Ok(Sandbox::builder()
        .policy(policy(python, &[])?)
        .ready(0)
        .build()?)
}

/// The default policy with this interpreter and these modules preloaded.
pub fn policy(python: &Path, preload: &[&str]) -> Result<Policy, Error> {
    let mut settings = vec![format!("python.interpreter={}", python.display())];
    settings.extend(preload.iter().map(|name| format!("python.preload={name}")));
    let settings: Vec<Override> = settings
        .iter()
        .map(|setting| setting.parse())
        .collect::<Result<_, _>>()?;
    Ok(Policy::load("standard", &settings, &FileSystem)?)
}

impl Environments {
    /// The environments that the manifests of `cargo xtask` list for this interpreter.
    fn of(interpreter: &Interpreter) -> Self {
        let made = manifest("bench/environments.json");
        let tests = manifest("test-envs/manifest.json");
        let is_ours = |entry: &&Value| {
            let executable = entry["executable"].as_str().map(fs::canonicalize);
            executable.is_some_and(|found| found.is_ok_and(|found| found == interpreter.binary))
        };
        let ours = entries(&made).iter().find(is_ours);
        let path = |name| ours.and_then(|ours| ours[name].as_str()).map(PathBuf::from);
        let of_tests = entries(&tests).iter().find(is_ours);
        let of_tests = of_tests.and_then(|env| env["venv"].as_str());
        let of_tests = of_tests.map(|venv| Path::new(venv).join("bin/python"));
        Self {
            modules: path("modules").or(of_tests),
            programs: path("pyperformance"),
            sandlock: path("sandlock"),
        }
    }
}

fn entries(manifest: &Value) -> &[Value] {
    let entries = manifest["interpreters"].as_array();
    entries.map_or(&[], Vec::as_slice)
}

/// The manifest. Empty if it was not made, or by another version.
fn manifest(name: &str) -> Value {
    let text = fs::read_to_string(target_directory().join(name)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

fn has_modules(python: &Path, modules: &[&str]) -> bool {
    let mut command = std::process::Command::new(python);
    command.arg("-c").arg("import importlib.util, sys\nsys.exit(not all(map(importlib.util.find_spec, sys.argv[1:])))");
    let output = command.args(modules).output();
    output.is_ok_and(|output| output.status.success())
}

/// Cargo's target directory.
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
