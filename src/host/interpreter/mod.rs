//! The Python interpreter that becomes the zygote: where it is, what it is, and what it needs.

mod ask;
mod facts;
mod resolve;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

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

/// Why an interpreter cannot be used.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum InterpreterError {
    /// No program on PATH has that name.
    #[error(
        "there is no `{name}` on PATH ({searched}): install CPython 3.9 or later, or set \
         `python.interpreter` to the path of one"
    )]
    NotOnPath {
        /// The name, as the policy writes it.
        name: String,
        /// The PATH.
        searched: String,
    },
    /// The path does not exist.
    #[error(
        "the interpreter {path} cannot be found ({cause}): set `python.interpreter` to a program, \
         a name on PATH or a virtual environment", path = path.display()
    )]
    NotFound {
        /// The path, as the policy writes it.
        path: PathBuf,
        /// The operating system's error message.
        cause: String,
    },
    /// The program is where this user may not go.
    #[error(
        "the interpreter {link} leads to {path}, which uid {uid} may not execute, because {closed} is \
         closed to it: make the virtual environment from an interpreter that this user can run, such \
         as /usr/bin/python3, or open {closed}",
        link = link.display(), path = path.display(), closed = closed.display()
    )]
    OutOfReach {
        /// The path, as the policy writes it.
        link: PathBuf,
        /// The program itself.
        path: PathBuf,
        /// What is closed: the program, or a directory above it.
        closed: PathBuf,
        /// The user.
        uid: u32,
    },
    /// The link leads nowhere.
    #[error(
        "the interpreter {link} is a link to {path}, which does not exist: make the virtual \
         environment again, because the Python that made it is gone",
        link = link.display(), path = path.display()
    )]
    Dangling {
        /// The path, as the policy writes it.
        link: PathBuf,
        /// Where it leads.
        path: PathBuf,
    },
    /// The path is a directory without a virtual environment.
    #[error(
        "{dir} has no bin/python, so it is no virtual environment: make one with `python3 -m venv \
         {dir}`", dir = dir.display()
    )]
    NotAVirtualEnvironment {
        /// The directory, as the policy writes it.
        dir: PathBuf,
    },
    /// It could not be executed.
    #[error(
        "the interpreter {path} cannot be executed ({cause}): {remedy}", path = path.display()
    )]
    NotExecutable {
        /// The path of the interpreter.
        path: PathBuf,
        /// The operating system's error message.
        cause: String,
        /// What to do about it.
        remedy: String,
    },
    /// It could not be started, because the host has run out of something.
    #[error(
        "the interpreter {path} could not be started ({cause}): {remedy}", path = path.display()
    )]
    NotStarted {
        /// The path of the interpreter.
        path: PathBuf,
        /// The operating system's error message.
        cause: String,
        /// What to do about it.
        remedy: &'static str,
    },
    /// The interpreter ended without an answer.
    #[error(
        "the interpreter {path} does not work ({how}): check that `{path} -I -S -c pass` succeeds, \
         or name another with `python.interpreter`", path = path.display()
    )]
    Broken {
        /// The path of the interpreter.
        path: PathBuf,
        /// How it ended, and its last output.
        how: String,
    },
    /// The interpreter answered, and it is unsuitable.
    #[error(
        "the interpreter {path} is {what}, and Sandfork needs CPython 3.9 or later with the global \
         interpreter lock: name another with `python.interpreter`", path = path.display()
    )]
    Unsuitable {
        /// The path of the interpreter.
        path: PathBuf,
        /// Why it is unsuitable.
        what: Rejection,
    },
}

/// Why an interpreter is unsuitable.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// It is not CPython.
    #[error("not CPython but {implementation}")]
    Implementation {
        /// `sys.implementation.name`.
        implementation: String,
    },
    /// It is older than CPython 3.9.
    #[error("Python {version}")]
    TooOld {
        /// The version that it reports.
        version: String,
    },
    /// It was built without the global interpreter lock.
    #[error("a free-threaded build of CPython")]
    FreeThreaded,
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
