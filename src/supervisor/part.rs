//! Writes files atomically.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::random::random;

/// A temporary file beside the file that it is to replace, so that a reader finds either the old file or the complete
/// new one. Dropping it without [`finish`](Self::finish) removes it.
pub struct Part {
    /// Open for writing.
    pub file: File,
    path: PathBuf,
}

impl Part {
    /// Creates the temporary file with `mode`, less the process's umask.
    ///
    /// # Errors
    /// As for [`check`](Self::check), and when the file cannot be created.
    pub fn create(of: &Path, mode: u32) -> io::Result<Self> {
        of.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        Self::check(of).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        // Not derived from the target's name, which may already have the maximum length.
        let number = u64::from_ne_bytes(random()?);
        let path = of.with_file_name(format!(".sandfork-{number:016x}"));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let file = options.open(&path)?;
        Ok(Self { file, path })
    }

    /// Checks that a rename may replace `of`: a path that does not exist, or a regular file.
    ///
    /// # Errors
    /// When the path is a symbolic link, a pipe, or a device such as `/dev/stdout`, which a rename would replace rather
    /// than write to.
    pub fn check(of: &Path) -> Result<(), &'static str> {
        match of.symlink_metadata() {
            Ok(found) if !found.is_file() => Err("something else has the name"),
            _ => Ok(()),
        }
    }

    /// Renames the temporary file to `path`.
    pub fn finish(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Fails after `finish`, because the file no longer has this name.
        _ = fs::remove_file(&self.path);
    }
}
