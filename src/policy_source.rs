//! Reads policy files from the file system.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::host::whole_text;
use crate::policy::PolicySource;

/// The size limit of a policy file in MiB. A wrong path, such as a log or a disk image, is then refused rather than
/// loaded.
const MAX_MIB: u64 = 1;

/// Reads policy files from the file system: regular files of at most 1 MiB, in UTF-8.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystem;

impl PolicySource for FileSystem {
    fn read(&self, path: &Path) -> io::Result<String> {
        // Without O_NONBLOCK, opening a FIFO would block until a writer opens it.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        whole_text(file, MAX_MIB)
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        std::env::current_dir()
    }
}
