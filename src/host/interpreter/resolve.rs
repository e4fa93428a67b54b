//! From what a policy says (`python3`, a path, a virtual environment) to a program to run.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::InterpreterError;

/// The part of the caller's environment that decides which interpreter a name means.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct CallerEnvironment {
    /// `PATH`, `HOME` and `PYENV_*`.
    variables: Vec<(OsString, OsString)>,
}

impl CallerEnvironment {
    /// Takes from this process's environment.
    pub fn current() -> Self {
        Self::from_variables(env::vars_os())
    }

    /// Takes what matters of these variables.
    pub fn from_variables(variables: impl IntoIterator<Item = (OsString, OsString)>) -> Self {
        let matters = |name: &OsStr| {
            let name = name.to_string_lossy();
            name == "PATH" || name == "HOME" || name.starts_with("PYENV_")
        };
        Self {
            variables: variables
                .into_iter()
                .filter(|(name, _)| matters(name))
                .collect(),
        }
    }

    /// What matters.
    pub fn variables(&self) -> impl Iterator<Item = (&OsStr, &OsStr)> {
        self.variables
            .iter()
            .map(|(name, value)| (name.as_os_str(), value.as_os_str()))
    }

    fn path(&self) -> &OsStr {
        self.variables()
            .find(|(name, _)| *name == "PATH")
            .map_or(OsStr::new(""), |(_, path)| path)
    }
}

/// Finds the program: a name on PATH, a path, or the directory of a virtual environment.
pub fn resolve(
    interpreter: &str,
    environment: &CallerEnvironment,
) -> Result<PathBuf, InterpreterError> {
    let as_path = Path::new(interpreter);
    if !interpreter.contains('/') {
        if let Some(found) = on_path(interpreter, environment.path()) {
            return Ok(found);
        }
        if !as_path.is_dir() {
            return Err(InterpreterError::NotOnPath {
                name: interpreter.to_owned(),
                searched: environment.path().to_string_lossy().into_owned(),
            });
        }
    }
    let found = fs::metadata(as_path).and_then(|found| Ok((found, std::path::absolute(as_path)?)));
    match found {
        Ok((found, path)) if found.is_dir() => in_virtual_environment(&path),
        Ok((_, path)) => Ok(path),
        Err(error) => Err(InterpreterError::NotFound {
            path: as_path.to_owned(),
            cause: error.to_string(),
        }),
    }
}

fn on_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|file| {
            fs::metadata(file)
                .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
        })
}

fn in_virtual_environment(dir: &Path) -> Result<PathBuf, InterpreterError> {
    ["bin/python", "bin/python3"]
        .iter()
        .map(|python| dir.join(python))
        .find(|python| python.exists())
        .ok_or_else(|| InterpreterError::NotAVirtualEnvironment {
            dir: dir.to_owned(),
        })
}
