//! Resolves the interpreter that a policy names: a program name, a path, or a virtual environment.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::{AccessFlags, eaccess, geteuid};

use super::facts::follow;
use super::unusable;
use crate::error::Error;
use crate::host::CallerEnvironment;

/// Resolves a program name on PATH, a path, or the directory of a virtual environment.
pub fn resolve(interpreter: &str, environment: &CallerEnvironment) -> Result<PathBuf, Error> {
    let as_path = Path::new(interpreter);
    if !interpreter.contains('/') {
        if let Some(found) = on_path(interpreter, environment.path()) {
            return Ok(found);
        }
        if !as_path.is_dir() {
            return Err(unusable(format!(
                "there is no `{interpreter}` on PATH ({}): install CPython 3.9 or later, or set `python.interpreter` to the \
                 path of one",
                environment.path().to_string_lossy()
            )));
        }
    }
    if let Some(unreachable) = behind_links(as_path) {
        return Err(unreachable);
    }
    let found = fs::metadata(as_path).and_then(|found| Ok((found, std::path::absolute(as_path)?)));
    match found {
        Ok((found, path)) if found.is_dir() => in_virtual_environment(&path),
        Ok((_, path)) => Ok(path),
        Err(error) => Err(unusable(format!(
            "the interpreter {interpreter} cannot be found ({error}): set `python.interpreter` to a program, a name on \
             PATH or a virtual environment"
        ))),
    }
}

fn on_path(name: &str, path: &OsStr) -> Option<PathBuf> {
    places(name, path).find(|file| {
        fs::metadata(file)
            .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    })
}

/// Returns where a program of that name may be, highest precedence first.
pub fn places(name: &str, path: &OsStr) -> impl Iterator<Item = PathBuf> {
    let directories = env::split_paths(path).filter(|dir| dir.is_absolute());
    directories.map(move |dir| dir.join(name))
}

fn in_virtual_environment(dir: &Path) -> Result<PathBuf, Error> {
    let candidates = ["bin/python", "bin/python3"].map(|python| dir.join(python));
    if let Some(python) = candidates.iter().find(|python| python.exists()) {
        return match behind_links(python) {
            Some(unreachable) => Err(unreachable),
            None => Ok(python.clone()),
        };
    }
    let unreachable = candidates.iter().find_map(|python| behind_links(python));
    Err(unreachable.unwrap_or_else(|| {
        unusable(format!(
            "{dir} has no bin/python, so it is not a virtual environment: make one with `python3 -m venv {dir}`",
            dir = dir.display()
        ))
    }))
}

/// Returns why this user cannot execute the program to which a link leads. The `python` of a virtual environment is a
/// link to the interpreter that created it, which may be in another user's home directory.
fn behind_links(link: &Path) -> Option<Error> {
    let (links, path) = follow(&std::path::absolute(link).ok()?);
    let is_link = !links.is_empty();
    let closed = match fs::metadata(link) {
        Err(error) if error.kind() == ErrorKind::NotFound && is_link => None,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Some(closed_above(&path)?),
        Ok(found) if found.is_file() && is_link => {
            let refused = eaccess(link, AccessFlags::X_OK) == Err(Errno::EACCES);
            Some(refused.then(|| path.clone())?)
        }
        _ => return None,
    };
    let (link, path) = (link.display(), path.display());
    Some(unusable(match closed {
        Some(closed) => format!(
            "the interpreter {link} is a link to {path}, which uid {} may not execute, because {closed} is closed to it: make \
             the virtual environment from an interpreter that this user can run, such as /usr/bin/python3, or open \
             {closed}",
            geteuid(),
            closed = closed.display()
        ),
        None => format!(
            "the interpreter {link} is a link to {path}, which does not exist: make the virtual environment again, because \
             the Python that made it is gone"
        ),
    }))
}

/// Returns the topmost directory above a path that this user may not search.
fn closed_above(path: &Path) -> Option<PathBuf> {
    let mut above: Vec<&Path> = path.ancestors().skip(1).collect();
    above.reverse();
    let closed = above
        .into_iter()
        .find(|dir| eaccess(*dir, AccessFlags::X_OK) == Err(Errno::EACCES));
    closed.map(Path::to_owned)
}
