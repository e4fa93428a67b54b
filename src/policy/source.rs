//! The source of policy files. The policy module itself does no I/O.

use std::io;
use std::path::{Path, PathBuf};

/// Reads policy files for `Policy::load`.
pub trait PolicySource {
    /// Returns the text of a policy file. A relative path is relative to the current directory.
    fn read(&self, path: &Path) -> io::Result<String>;

    /// Returns the absolute directory against which relative paths of the command line are resolved.
    fn current_dir(&self) -> io::Result<PathBuf>;

    /// Returns whether a path names a real file, so that errors can name its lines.
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
