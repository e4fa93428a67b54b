//! Policy files of the file system.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use crate::policy::PolicySource;

/// No policy is longer; a wrong path such as a log or a disk image is refused, not loaded.
const LONGEST: u64 = 1 << 20;

/// Reads policy files from the file system: regular files of at most 1 MiB, in UTF-8.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileSystem;

impl PolicySource for FileSystem {
    fn read(&self, path: &Path) -> io::Result<String> {
        // Without O_NONBLOCK, opening a fifo would wait for a writer that never comes.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut bytes = Vec::new();
        // One byte more than allowed tells "too long" from "just fits": a policy that was cut off
        // could be a weaker one.
        file.take(LONGEST + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LONGEST {
            return Err(io::Error::other("longer than 1 MiB"));
        }
        String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8"))
    }

    fn current_dir(&self) -> io::Result<PathBuf> {
        std::env::current_dir()
    }
}
