#![allow(clippy::unwrap_used, reason = "a test")]

mod operations;
mod races;

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use tempfile::TempDir;

use super::*;

/// A work directory, and beside it a directory that must stay out of reach.
struct World {
    top: TempDir,
    work: OwnedFd,
}

const SECRET: &str = "what no guest may read";

impl World {
    fn new() -> Self {
        let top = tempfile::tempdir().unwrap();
        std::fs::create_dir(top.path().join("work")).unwrap();
        std::fs::create_dir(top.path().join("outside")).unwrap();
        std::fs::write(top.path().join("outside/file"), SECRET).unwrap();
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let work = open(&top.path().join("work"), flags, Mode::empty()).unwrap();
        Self { top, work }
    }

    fn dir(&self) -> WorkDir<'_> {
        WorkDir::new(self.work.as_fd(), Path::new("/work"), None)
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.top.path().join("work").join(name)
    }

    fn outside(&self) -> std::path::PathBuf {
        self.top.path().join("outside")
    }

    fn read(&self, path: &str) -> Result<String, FileError> {
        let (file, _) = self.dir().open_read(&self.at(path))?;
        Ok(text(file))
    }

    fn at(&self, path: &str) -> GuestPath {
        self.dir().path(path).unwrap()
    }

    /// Checks that everything outside is unchanged.
    fn assert_outside_untouched(&self) {
        let entries: Vec<_> = std::fs::read_dir(self.outside()).unwrap().collect();
        assert_eq!(entries.len(), 1);
        let kept = std::fs::read_to_string(self.outside().join("file")).unwrap();
        assert_eq!(kept, SECRET);
    }
}

fn text(mut file: File) -> String {
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    text
}

fn errno<T: std::fmt::Debug>(result: Result<T, FileError>) -> Errno {
    result.unwrap_err().errno()
}
