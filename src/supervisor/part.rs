//! A file that is not whole yet.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::random::random;

/// A new file beside the one that it is to replace: a reader finds the old one or the whole new one. It is removed unless
/// it is finished.
pub struct Part {
    /// Open for writing.
    pub file: File,
    path: PathBuf,
}

impl Part {
    /// Makes it with a mode, of which the process's umask takes its part.
    ///
    /// # Errors
    /// As of [`check`](Self::check), and what the system says.
    pub fn create(of: &Path, mode: u32) -> io::Result<Self> {
        of.file_name().ok_or(io::ErrorKind::IsADirectory)?;
        Self::check(of).map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why))?;
        // Without the name of the other, to which nothing may be added if it is as long as names are.
        let number = u64::from_ne_bytes(random()?);
        let path = of.with_file_name(format!(".sandfork-{number:016x}"));
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(mode);
        let file = options.open(&path)?;
        Ok(Self { file, path })
    }

    /// Checks that it may replace what has the name.
    ///
    /// # Errors
    /// Says that it is something that a rename would replace, and not write to: a link, a pipe, or a device such as
    /// `/dev/stdout`.
    pub fn check(of: &Path) -> Result<(), &'static str> {
        match of.symlink_metadata() {
            Ok(found) if !found.is_file() => Err("something else has the name"),
            _ => Ok(()),
        }
    }

    /// Gives it the other's name.
    pub fn finish(self, path: &Path) -> io::Result<()> {
        fs::rename(&self.path, path)
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        // Once it is finished, nothing has this name.
        _ = fs::remove_file(&self.path);
    }
}
