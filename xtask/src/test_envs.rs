//! The virtual environments in which the tests find numpy, pandas and HumanEval.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::json;

use crate::Error;
use crate::interpreters::{self, Found, Interpreter};

const REQUIREMENTS: &str = include_str!("../test-requirements.txt");

/// Written last, so that one whose making was interrupted is made anew.
const STAMP: &str = "made-from.txt";

/// What the tests read to find the rest.
pub const MANIFEST: &str = "manifest.json";

/// An interpreter with its environment.
#[derive(Clone, Debug)]
pub struct TestEnv {
    /// What it was made of.
    pub interpreter: Interpreter,
    /// The virtual environment.
    pub directory: PathBuf,
}

/// All environments.
#[derive(Clone, Debug)]
pub struct TestEnvs {
    /// One for each interpreter.
    pub envs: Vec<TestEnv>,
    /// Interpreters that Sandfork must refuse.
    pub too_old: Vec<Interpreter>,
}

/// Makes what is missing, and the manifest `target/test-envs/manifest.json`.
pub fn make(workspace: &Path) -> Result<TestEnvs, Error> {
    let manifest = workspace.join("target/test-envs");
    let root = place(&manifest)?;
    fs::create_dir_all(&manifest)?;
    fs::create_dir_all(&root)?;
    let Found { supported, too_old } = interpreters::find();
    if supported.is_empty() {
        return Err(
            "no CPython 3.9 or later was found (PATH, pyenv, uv, /usr/bin): install one".into(),
        );
    }
    let mut envs = Vec::new();
    for interpreter in supported {
        let directory = root.join(format!("cpython-{}", interpreter.version_text()));
        let env = TestEnv {
            interpreter,
            directory,
        };
        env.make()?;
        envs.push(env);
    }
    let made = TestEnvs { envs, too_old };
    made.write_manifest(&manifest)?;
    Ok(made)
}

/// Where the environments are: beside the manifest, unless the checkout lies where a sandbox has a
/// directory of its own. Tests of what lies there make their own.
fn place(beside_the_manifest: &Path) -> Result<PathBuf, Error> {
    let inside = ["/work", "/tmp", "/dev"]
        .iter()
        .any(|own| beside_the_manifest.starts_with(own));
    if !inside {
        return Ok(beside_the_manifest.to_owned());
    }
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(env::home_dir()?.join(".cache")));
    Ok(cache.ok_or("HOME is not set")?.join("sandfork/test-envs"))
}

impl TestEnvs {
    /// Writes what the tests read: which interpreters there are, and where.
    pub fn write_manifest(&self, root: &Path) -> Result<(), Error> {
        let env = |env: &TestEnv| {
            json!({
                "version": env.interpreter.version,
                "executable": env.interpreter.executable,
                "venv": env.directory,
            })
        };
        let too_old =
            |old: &Interpreter| json!({"version": old.version, "executable": old.executable});
        let manifest = json!({
            "interpreters": self.envs.iter().map(env).collect::<Vec<_>>(),
            "too_old": self.too_old.iter().map(too_old).collect::<Vec<_>>(),
        });
        fs::write(root.join(MANIFEST), format!("{manifest:#}\n"))?;
        Ok(())
    }
}

impl TestEnv {
    fn make(&self) -> Result<(), Error> {
        let stamp = format!("{}\n{REQUIREMENTS}", self.interpreter.executable.display());
        if fs::read_to_string(self.directory.join(STAMP)).is_ok_and(|found| found == stamp) {
            return Ok(());
        }
        println!("making {} (once)", self.directory.display());
        if self.directory.exists() {
            fs::remove_dir_all(&self.directory)?;
        }
        self.make_venv()?;
        let requirements = self.directory.join("requirements.txt");
        fs::write(&requirements, REQUIREMENTS)?;
        let mut pip = self.pip();
        pip.args([
            "install",
            "--quiet",
            "--no-input",
            "--disable-pip-version-check",
        ])
        // Everything is listed and ready-made: no compiler is needed, nothing is resolved.
        .args(["--no-deps", "--only-binary=:all:", "--requirement"])
        .arg(&requirements);
        let installed = run(&mut pip)?;
        if !installed.status.success() {
            return Err(self.pip_failed(&installed).into());
        }
        fs::write(self.directory.join(STAMP), stamp)?;
        Ok(())
    }

    fn make_venv(&self) -> Result<(), Error> {
        let mut venv = Command::new(&self.interpreter.executable);
        let made = run(venv.args(["-m", "venv"]).arg(&self.directory))?;
        if made.status.success() {
            return Ok(());
        }
        Err(format!(
            "{} could not make a virtual environment: {}; on Debian and Ubuntu, `apt install \
             python3-venv` adds what its package leaves out",
            self.interpreter.executable.display(),
            last_line(&made),
        )
        .into())
    }

    fn pip(&self) -> Command {
        let mut pip = Command::new(self.directory.join("bin/python"));
        pip.args(["-I", "-m", "pip"]);
        pip
    }

    fn pip_failed(&self, output: &Output) -> String {
        format!(
            "pip could not install xtask/test-requirements.txt into {}: {}; the first run needs the \
             Python package index (set PIP_INDEX_URL or HTTPS_PROXY where it is behind a mirror or a \
             proxy), later ones do not",
            self.directory.display(),
            last_line(output),
        )
    }
}

fn run(command: &mut Command) -> Result<Output, Error> {
    let program = command.get_program().to_owned();
    let output = command.stdin(Stdio::null()).output();
    output.map_err(|error| format!("could not run {}: {error}", program.display()).into())
}

fn last_line(output: &Output) -> String {
    let said =
        [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let last = said
        .iter()
        .flat_map(|text| text.lines().rev())
        .find(|line| !line.trim().is_empty());
    last.map_or_else(|| output.status.to_string(), |line| line.trim().to_owned())
}
