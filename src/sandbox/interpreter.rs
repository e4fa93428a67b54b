//! Chooses a policy's interpreter: one of the host, or that of a package environment.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::Error;
use crate::host::{
    CallerEnvironment, EnvironmentStore, pip_config, probe_interpreter, resolve_interpreter,
};
use crate::policy::{Policy, Requirement};

/// The interpreter of a sandbox.
#[derive(Debug)]
pub struct ChosenInterpreter {
    /// The path of the executable.
    pub executable: PathBuf,
    /// Holds a lock on its environment, so that the environment is not removed.
    pub held: Option<File>,
}

impl ChosenInterpreter {
    /// Returns a policy's interpreter, for a caller with this environment.
    ///
    /// # Errors
    /// If the interpreter cannot be found, or its environment has not been created.
    pub fn of(policy: &Policy, environment: &CallerEnvironment) -> Result<Self, Error> {
        let python = &policy.python;
        let store = || EnvironmentStore::of(environment);
        let found = if let Some(name) = &python.environment {
            store()?.find(&name.value)?
        } else {
            let executable = resolve_on_host(&python.interpreter.value, environment)?;
            if python.packages.is_empty() {
                let held = None;
                return Ok(Self { executable, held });
            }
            let packages: Vec<Requirement> =
                python.packages.iter().map(|it| it.value.clone()).collect();
            let sources = pip_config(environment, &executable).sources();
            store()?.find_packages(&packages, &executable, sources.as_ref())?
        };
        let (directory, held) = found;
        let executable = resolve_interpreter(&directory.display().to_string(), environment);
        Ok(Self {
            executable: executable?,
            held: Some(held),
        })
    }
}

/// Resolves `python.interpreter` to an executable.
///
/// A launcher script, such as pyenv's shim on `PATH`, is run here to learn which interpreter it would start, because it
/// needs the caller's environment, which a zygote must not have.
fn resolve_on_host(named: &str, environment: &CallerEnvironment) -> Result<PathBuf, Error> {
    let path = resolve_interpreter(named, environment)?;
    if is_script(&path) {
        return Ok(probe_interpreter(&path, environment)?.executable);
    }
    Ok(path)
}

pub(super) fn is_script(path: &Path) -> bool {
    let mut start = [0; 2];
    File::open(path)
        .and_then(|mut file| file.read_exact(&mut start))
        .is_ok()
        && start == *b"#!"
}
