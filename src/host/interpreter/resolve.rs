//! Finds the program for the interpreter that a policy names (`python3`, a path, a virtual
//! environment).

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::InterpreterError;
use crate::host::CallerEnvironment;

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
