//! The Python interpreter that becomes the zygote: where it is, what it is, and what it needs.

mod ask;
mod facts;
mod resolve;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind};

pub use ask::probe;
use facts::FACTS_SCRIPT;
pub(super) use resolve::places;
pub use resolve::resolve;

/// A CPython that Sandfork can use.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Interpreter {
    /// The path to execute, which becomes `sys.executable`. In a virtual environment it is that
    /// environment's link.
    pub executable: PathBuf,
    /// The symbolic links from there to the binary, in the order of their resolution.
    pub links: Vec<Link>,
    /// The binary itself.
    pub binary: PathBuf,
    /// `sys.implementation.name`.
    pub implementation: String,
    /// The first three numbers of `sys.version_info`.
    pub version: (u8, u8, u8),
    /// Where packages are installed: the virtual environment, or the installation.
    pub prefix: PathBuf,
    /// The prefix of the installation.
    pub base_prefix: PathBuf,
    /// Directory of the standard library's Python files.
    pub stdlib: PathBuf,
    /// The directories of the installation for programs and for those who compile some.
    pub programs: Vec<PathBuf>,
    /// The directories of the installation that contain libraries and no programs.
    pub libraries: Vec<PathBuf>,
    /// The virtual environment, if the interpreter belongs to one.
    pub venv: Option<PathBuf>,
    /// What is closed to some users, as `/root` is: the directory on the way to it that is nearest, or its binary.
    pub closed: Option<PathBuf>,
}

/// A symbolic link.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Link {
    /// The path of the link.
    pub path: PathBuf,
    /// The target of the link.
    pub points_at: PathBuf,
}

/// Who can read a file at its own path on the host.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Reach {
    /// Any user.
    #[default]
    Everyone,
    /// Not every user: a directory above it, or the file, is closed to others, as `/root` is.
    NotEveryone,
    /// Root alone: the file is root's, and closed to its group and to others.
    Root,
}

/// Why an interpreter cannot be used: it is missing or unsuitable, or this user cannot execute it.
fn unusable(sentence: impl Into<String>) -> Error {
    Error::new(ErrorKind::Interpreter, sentence)
}

/// It ended without an answer: how, with its last output.
fn broken(path: &Path, how: &str) -> Error {
    let path = path.display();
    unusable(format!(
        "the interpreter {path} does not work ({how}): check that `{path} -I -S -c pass` succeeds, or name another \
         with `python.interpreter`"
    ))
}

/// It answered, and is something else than what is needed.
fn unsuitable(path: &Path, what: &str) -> Error {
    unusable(format!(
        "the interpreter {} is {what}, and Sandfork needs CPython 3.9 or later with the global interpreter lock: name \
         another with `python.interpreter`",
        path.display()
    ))
}

/// The oldest CPython that is supported.
pub const OLDEST: (u8, u8) = (3, 9);

impl Reach {
    /// Whether any user can read a file, or look into a directory.
    pub(super) fn to_read(path: &Path) -> Self {
        match closed(path, if path.is_dir() { 0o005 } else { 0o004 }) {
            None => Self::Everyone,
            Some(_) => Self::NotEveryone,
        }
    }
}

/// The nearest of a file, which must have these rights for others, and the directories above it that is closed to some
/// user.
fn closed(file: &Path, bits: u32) -> Option<PathBuf> {
    let is_closed = |path: &&Path| {
        let bits = if *path == file { bits } else { 0o001 };
        !fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bits == bits)
    };
    file.ancestors().find(is_closed).map(Path::to_owned)
}

#[cfg(test)]
mod tests;
