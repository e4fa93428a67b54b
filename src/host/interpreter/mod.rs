//! Describes the Python interpreter that becomes the zygote, and its files.

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
    /// The path to execute, which becomes `sys.executable`. In a virtual environment it is the environment's link.
    pub executable: PathBuf,
    /// The symbolic links from `executable` to the binary, in order of resolution.
    pub links: Vec<Link>,
    /// The binary itself.
    pub binary: PathBuf,
    /// `sys.implementation.name`.
    pub implementation: String,
    /// The first three numbers of `sys.version_info`.
    pub version: (u8, u8, u8),
    /// The directory into which packages are installed: the virtual environment, or the installation.
    pub prefix: PathBuf,
    /// The prefix of the installation.
    pub base_prefix: PathBuf,
    /// The directory of the standard library's Python files.
    pub stdlib: PathBuf,
    /// The directories of the installation that hold programs, and headers for compiling extensions.
    pub programs: Vec<PathBuf>,
    /// The directories of the installation that hold libraries and no programs.
    pub libraries: Vec<PathBuf>,
    /// The virtual environment, if the interpreter belongs to one.
    pub venv: Option<PathBuf>,
    /// The binary or the nearest directory above it that is not accessible to every user, as `/root` is not.
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

/// Who can read a file at its path on the host.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Reach {
    /// Any user.
    #[default]
    Everyone,
    /// Not every user: the file or a directory above it, such as `/root`, is closed to others.
    NotEveryone,
    /// Root only: the file belongs to root, and is closed to its group and to others.
    Root,
}

/// Returns the error for an interpreter that is missing or unsuitable, or that this user cannot execute.
fn unusable(sentence: impl Into<String>) -> Error {
    Error::new(ErrorKind::Interpreter, sentence)
}

/// Returns the error for an interpreter that gave no answer. `how` says how it ended, with its last output.
fn broken(path: &Path, how: &str) -> Error {
    let path = path.display();
    unusable(format!(
        "the interpreter {path} does not work ({how}): check that `{path} -I -S -c pass` succeeds, or name another \
         with `python.interpreter`"
    ))
}

/// Returns the error for an interpreter that answered but is unsuitable.
fn unsuitable(path: &Path, what: &str) -> Error {
    unusable(format!(
        "the interpreter {} is {what}, and Sandfork needs CPython 3.9 or later with the global interpreter lock: name \
         another with `python.interpreter`",
        path.display()
    ))
}

/// The oldest supported CPython.
pub const OLDEST: (u8, u8) = (3, 9);

impl Reach {
    /// Returns whether every user can read a file or list a directory.
    pub(super) fn to_read(path: &Path) -> Self {
        match closed(path, if path.is_dir() { 0o005 } else { 0o004 }) {
            None => Self::Everyone,
            Some(_) => Self::NotEveryone,
        }
    }
}

/// Returns the file, or the nearest directory above it, that is closed to some user. The file must grant `bits` to
/// others.
fn closed(file: &Path, bits: u32) -> Option<PathBuf> {
    let is_closed = |path: &&Path| {
        let bits = if *path == file { bits } else { 0o001 };
        !fs::metadata(path).is_ok_and(|found| found.permissions().mode() & bits == bits)
    };
    file.ancestors().find(is_closed).map(Path::to_owned)
}

#[cfg(test)]
mod tests;
