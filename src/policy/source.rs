//! Where policy files come from. The policy itself does no I/O.

use std::io;
use std::path::{Path, PathBuf};

/// Reads policy files for `Policy::load`.
pub trait PolicySource {
    /// The text of a policy file. A relative path starts from the current directory.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// The absolute directory that relative paths of the command line start from.
    fn current_dir(&self) -> io::Result<PathBuf>;
}

/// Has no files: for built-in policies alone.
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
