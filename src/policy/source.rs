//! The source of policy files. The policy module itself does no I/O.

use std::io;
use std::path::{Path, PathBuf};

/// Reads policy files for `Policy::load`.
pub trait PolicySource {
    /// The text of a policy file. A relative path is relative to the current directory.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The absolute directory for relative paths of the command line.
    fn current_dir(&self) -> io::Result<PathBuf>;

    /// Whether what was read from a path is a file, whose lines an error can name.
    fn is_file(&self, _: &Path) -> bool {
        true
    }
}

/// A source without files, for built-in policies only.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuiltInsOnly;

impl PolicySource for BuiltInsOnly {
    fn read(&self, _: &Path) -> io::Result<String> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        Err(io::ErrorKind::NotFound.into())
    }
}
