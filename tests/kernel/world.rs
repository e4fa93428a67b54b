//! What the tests find on this machine, and the sandboxes that they share.

use std::collections::HashMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock};

use sandfork::internals::host::{self, Host};
use sandfork::internals::plan::needs;
use sandfork::internals::sandbox::{BuilderInternals as _, RunPath};
use sandfork::{Outcome, Request, Sandbox};
use serde::Deserialize;

use crate::recipe::{Recipe, standard};

/// An interpreter and its virtual environment, as `cargo xtask test envs` installed them.
#[derive(Clone, Debug, Deserialize)]
pub struct Python {
    version: [u8; 3],
    /// The path of the interpreter.
    pub executable: PathBuf,
    /// The path of the virtual environment.
    pub venv: PathBuf,
}

impl Python {
    /// Returns the minor version: 12 for 3.12.1.
    pub fn minor(&self) -> u8 {
        self.version[1]
    }

    /// Returns the version, such as `3.12.1`.
    pub fn version_text(&self) -> String {
        self.version.map(|number| number.to_string()).join(".")
    }
}

/// An interpreter that Sandfork must refuse.
#[derive(Clone, Debug, Deserialize)]
pub struct OldPython {
    version: [u8; 3],
    /// The path of the interpreter.
    pub executable: PathBuf,
}

#[derive(Default, Deserialize)]
struct Manifest {
    interpreters: Vec<Python>,
    too_old: Vec<OldPython>,
}

/// The machine, as the tests see it.
pub struct World {
    /// The machine, as the product's probe sees it.
    pub host: Host,
    /// The interpreters that this user can execute.
    pub pythons: Vec<Python>,
    too_old: Vec<OldPython>,
    run_path: RunPath,
    shared: Mutex<HashMap<Recipe, Arc<OnceLock<Sandbox>>>>,
}

impl World {
    /// Probes the machine.
    pub fn probe() -> Result<Self, String> {
        let manifest = read_manifest(&environments())?;
        let policy = standard().policy();
        let host = host::probe("python3", &needs(&policy)).map_err(|error| error.to_string())?;
        let Manifest {
            interpreters: pythons,
            too_old,
        } = manifest;
        Ok(Self {
            host,
            pythons,
            too_old,
            run_path: RunPath::default(),
            shared: Mutex::default(),
        })
    }

    /// Returns the same machine, with sandboxes whose runs only the Python implementation serves.
    pub fn by_python(&self) -> Self {
        Self {
            host: self.host.clone(),
            pythons: self.pythons.clone(),
            too_old: self.too_old.clone(),
            run_path: RunPath::Python,
            shared: Mutex::default(),
        }
    }

    /// Returns the old Python of this version, if installed.
    pub fn too_old(&self, major: u8, minor: u8) -> Option<&OldPython> {
        self.too_old
            .iter()
            .find(|old| old.version[..2] == [major, minor])
    }

    /// Returns what most tests run under: the environment of the interpreter that `python3` is. Without one, that of
    /// its minor version, of the newest version, or the interpreter itself.
    pub fn python(&self) -> &Path {
        let venv = self.environment().map(|python| python.venv.as_path());
        venv.unwrap_or(&self.host.interpreter.executable)
    }

    /// Returns the interpreter of [`Self::python`].
    pub fn program(&self) -> PathBuf {
        match self.environment() {
            Some(python) => python.venv.join("bin/python"),
            None => self.host.interpreter.executable.clone(),
        }
    }

    fn environment(&self) -> Option<&Python> {
        let (major, minor, micro) = self.host.interpreter.version;
        let whole = [major, minor, micro];
        let same = self.pythons.iter().find(|python| python.version == whole);
        let like = || self.pythons.iter().find(|python| python.minor() == minor);
        same.or_else(like).or(self.pythons.last())
    }

    /// Builds a sandbox for one test.
    pub fn build(&self, recipe: Recipe) -> Sandbox {
        let policy = recipe.python_unless_named(self.python()).policy();
        let builder = Sandbox::builder().policy(policy).ready(0);
        let built = builder.run_path(self.run_path).build();
        built.unwrap_or_else(|error| panic!("no sandbox: {error}"))
    }

    /// Runs code in a new sandbox.
    pub fn run(&self, recipe: Recipe, code: &str) -> Outcome {
        run(&self.build(recipe), code)
    }

    /// Calls a test with a sandbox that other tests use too.
    pub fn with_shared<T>(&self, recipe: Recipe, test: impl FnOnce(&Sandbox) -> T) -> T {
        let slot = {
            let mut shared = self
                .shared
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            Arc::clone(shared.entry(recipe.clone()).or_default())
        };
        test(slot.get_or_init(|| self.build(recipe)))
    }
}

/// Runs a request in a fresh worker.
pub fn run(sandbox: &Sandbox, request: impl Into<Request>) -> Outcome {
    sandbox
        .run(request)
        .unwrap_or_else(|error| panic!("no worker: {error}"))
}

fn environments() -> PathBuf {
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/test-envs");
    env::var_os("SANDFORK_TEST_ENVS").map_or_else(usual, PathBuf::from)
}

/// Reads the manifest. A missing manifest is not an error: tests that need it report it.
fn read_manifest(environments: &Path) -> Result<Manifest, String> {
    let path = environments.join("manifest.json");
    let Ok(text) = fs::read_to_string(&path) else {
        return Ok(Manifest::default());
    };
    serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
}
