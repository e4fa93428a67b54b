//! The virtual environments in which the tests find numpy, pandas and HumanEval.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::json;

use crate::Error;
use crate::clients;
use crate::interpreters::{self, Found, Interpreter};
use crate::venv::Venv;

const REQUIREMENTS: &str = include_str!("../test-requirements.txt");

/// The file in which the tests find the environments.
pub const MANIFEST: &str = "manifest.json";

/// An interpreter with its environment.
#[derive(Clone, Debug)]
pub struct TestEnv {
    /// The interpreter that it was made from.
    pub interpreter: Interpreter,
    /// The virtual environment.
    pub directory: PathBuf,
}

/// The test environments.
#[derive(Clone, Debug)]
pub struct TestEnvs {
    /// One environment for each interpreter.
    pub envs: Vec<TestEnv>,
    /// Interpreters that Sandfork must refuse.
    pub too_old: Vec<Interpreter>,
    /// The interpreter of the host's side, for tests that run with only one.
    pub client: Option<PathBuf>,
}

/// Makes the missing environments, and the manifest `target/test-envs/manifest.json`.
pub fn make(workspace: &Path) -> Result<TestEnvs, Error> {
    let manifest = workspace.join("target/test-envs");
    fs::create_dir_all(&manifest)?;
    let Found { supported, too_old } = interpreters::find();
    if supported.is_empty() {
        return Err(
            "no CPython 3.9 or later was found (PATH, pyenv, uv, /usr/bin): install one".into(),
        );
    }
    let mut envs = Vec::new();
    for interpreter in &supported {
        envs.push(make_for(workspace, interpreter)?);
    }
    let newest = envs.iter().max_by_key(|env| env.interpreter.version);
    let client = newest
        .map(|newest| clients::make(workspace, newest))
        .transpose()?;
    let made = TestEnvs {
        envs,
        too_old,
        client,
    };
    made.write_manifest(&manifest)?;
    Ok(made)
}

/// Makes the environment of one interpreter, if it is missing.
pub fn make_for(workspace: &Path, interpreter: &Interpreter) -> Result<TestEnv, Error> {
    let root = place(&workspace.join("target/test-envs"), "test-envs")?;
    fs::create_dir_all(&root)?;
    let env = TestEnv {
        interpreter: interpreter.clone(),
        directory: root.join(format!("cpython-{}", interpreter.version_text())),
    };
    Venv {
        interpreter: &env.interpreter,
        directory: &env.directory,
        requirements: REQUIREMENTS,
    }
    .make()?;
    Ok(env)
}

/// The place for environments: `here`, unless the checkout lies where a sandbox has its own
/// directory. `name` is the name of the directory elsewhere. Tests of such places make their own.
pub fn place(here: &Path, name: &str) -> Result<PathBuf, Error> {
    let inside = ["/work", "/tmp", "/dev"]
        .iter()
        .any(|own| here.starts_with(own));
    if !inside {
        return Ok(here.to_owned());
    }
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(env::home_dir()?.join(".cache")));
    Ok(cache.ok_or("HOME is not set")?.join("sandfork").join(name))
}

impl TestEnvs {
    /// Writes the manifest of interpreters and their environments for the tests.
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
            "client": self.client.as_ref().map(|python| json!({"python": python})),
        });
        fs::write(root.join(MANIFEST), format!("{manifest:#}\n"))?;
        Ok(())
    }
}
