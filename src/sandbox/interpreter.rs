//! Which interpreter a policy means: one of the host, or that of an environment of packages.

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
    /// The program.
    pub executable: PathBuf,
    /// Keeps its environment from being removed.
    pub held: Option<File>,
}

impl ChosenInterpreter {
    /// The interpreter of a policy for a caller with this environment.
    ///
    /// # Errors
    /// If it cannot be found, or its environment has not been made.
    pub fn of(policy: &Policy, environment: &CallerEnvironment) -> Result<Self, Error> {
        let python = &policy.python;
        let store = || EnvironmentStore::of(environment);
        let found = if let Some(name) = &python.environment {
            store()?.find(&name.value)?
        } else {
            let executable = of_host(&python.interpreter.value, environment)?;
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

/// The program behind `python.interpreter`.
///
/// A launcher script, such as pyenv puts on `PATH`, is asked which interpreter it would start: it
/// needs the caller's environment, which a zygote must not have.
fn of_host(named: &str, environment: &CallerEnvironment) -> Result<PathBuf, Error> {
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
