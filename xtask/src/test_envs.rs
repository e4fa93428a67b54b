//! Makes the virtual environments in which the tests find numpy, pandas and HumanEval, and the host
//! environments, in which they run the Python package and its clients.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use xshell::cmd;

use crate::at_once::two_at_a_time;
use crate::interpreters::{self, Found, Interpreter, Versions};
use crate::{shell, venv, workspace};

const REQUIREMENTS: &str = include_str!("../test-requirements.txt");

/// The same releases as the guests' packages, so that values compare equal inside and outside.
const CLIENTS_REQUIREMENTS: &str = concat!(
    include_str!("../test-requirements.txt"),
    include_str!("../python-requirements.txt")
);

/// The smolagents release whose own tests run with Sandfork's executor.
const SMOLAGENTS: &str = "smolagents==1.26.0";
const VERL: &str = "verl==0.9.1";

/// An interpreter with its virtual environment.
#[derive(Clone, Debug)]
pub struct TestEnv {
    /// The interpreter from which the environment was made.
    pub interpreter: Interpreter,
    /// The path of the virtual environment.
    pub directory: PathBuf,
}

/// The test environments.
#[derive(Clone, Debug)]
pub struct TestEnvs {
    /// One environment for each interpreter.
    pub envs: Vec<TestEnv>,
    /// Interpreters that Sandfork must refuse.
    pub too_old: Vec<Interpreter>,
    /// The interpreter of the host environment, for tests that run with only one.
    pub client: Option<PathBuf>,
}

/// Makes the missing environments and the manifest `target/test-envs/manifest.json`.
pub fn make(versions: Versions) -> Result<TestEnvs> {
    let Found { supported, too_old } = interpreters::find();
    let supported = versions.of(supported);
    ensure!(
        !supported.is_empty(),
        "no CPython 3.9 or later was found (PATH, pyenv, uv, /usr/bin): install one"
    );
    let envs = two_at_a_time(&supported, make_for)?;
    let newest = envs.iter().max_by_key(|env| env.interpreter.version);
    let client = newest
        .map(|newest| make_client(&newest.interpreter))
        .transpose()?;
    let made = TestEnvs {
        envs,
        too_old,
        client,
    };
    made.write_manifest(&workspace().join("target/test-envs"))?;
    Ok(made)
}

/// Makes the environment of one interpreter if it is missing.
pub fn make_for(interpreter: &Interpreter) -> Result<TestEnv> {
    let directory = place("test-envs")?.join(format!("cpython-{}", interpreter.version_text()));
    venv::make(interpreter, &directory, REQUIREMENTS)?;
    Ok(TestEnv {
        interpreter: interpreter.clone(),
        directory,
    })
}

/// Makes the host environment of an interpreter if it is missing. Returns its interpreter.
pub fn make_client(interpreter: &Interpreter) -> Result<PathBuf> {
    let directory = place("python-envs")?.join(format!("cpython-{}", interpreter.version_text()));
    venv::make(interpreter, &directory, CLIENTS_REQUIREMENTS)
}

/// Downloads what tests read of other projects without installing it: smolagents' source distribution, which contains
/// its tests, and verl's wheel. A failed download is not an error: the tests that need the file report that it is
/// missing. Returns the directory.
pub fn downloads(python: &Path) -> Result<PathBuf> {
    let directory = place("python-envs")?.join("downloads");
    fs::create_dir_all(&directory)?;
    let sh = shell()?;
    for (package, kind) in [
        (SMOLAGENTS, "--no-binary=:all:"),
        (VERL, "--only-binary=:all:"),
    ] {
        let beginning = package.replace("==", "-");
        let is_here = |path: &PathBuf| {
            let name = path.file_name().unwrap_or_default();
            name.to_string_lossy().starts_with(&beginning)
        };
        if sh.read_dir(&directory)?.iter().any(is_here) {
            continue;
        }
        let pip = cmd!(
            sh,
            "{python} -I -m pip download --quiet --no-deps --disable-pip-version-check --ignore-requires-python
             {kind} {package} --dest {directory}"
        );
        if let Err(error) = pip.quiet().run() {
            eprintln!("{package} could not be downloaded: {error}");
        }
    }
    Ok(directory)
}

/// Returns the directory for environments: below `target`, unless the checkout is below a path where a sandbox has its
/// own directory. Tests of such paths make their own environments.
pub fn place(name: &str) -> Result<PathBuf> {
    let here = workspace().join("target").join(name);
    if !["/work", "/tmp", "/dev"]
        .iter()
        .any(|own| here.starts_with(own))
    {
        return Ok(here);
    }
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(env::home_dir()?.join(".cache")));
    Ok(cache
        .context("HOME is not set")?
        .join("sandfork")
        .join(name))
}

impl TestEnvs {
    /// Writes the manifest of interpreters and their environments for the tests.
    pub fn write_manifest(&self, directory: &Path) -> Result<()> {
        let env = |env: &TestEnv| {
            json!({
                "version": env.interpreter.version,
                "executable": env.interpreter.executable,
                "venv": env.directory,
            })
        };
        let manifest = json!({
            "interpreters": self.envs.iter().map(env).collect::<Vec<_>>(),
            "too_old": self.too_old,
            "client": self.client.as_ref().map(|python| json!({"python": python})),
        });
        fs::create_dir_all(directory)?;
        Ok(fs::write(
            directory.join("manifest.json"),
            format!("{manifest:#}\n"),
        )?)
    }
}
