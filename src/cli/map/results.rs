//! Where results go: each in one line, which is there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use sandfork::batch::Done;
use thiserror::Error;

use super::ids::Ids;
use super::resume;
use crate::cli::terminal::harmless;

/// An open file of results.
#[derive(Debug)]
pub struct Results {
    /// What messages call it.
    name: String,
    file: File,
    shown: Shown,
    /// How many lines are in it.
    lines: u64,
    /// Keeps every other `sandfork map` away from a file that can be gone on with.
    lock: Option<Flock<File>>,
}

/// Who reads it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Shown {
    /// A terminal, which obeys what it shows.
    ToAPerson,
    /// A program.
    ToAProgram,
}

/// Why results cannot be had, or written.
#[derive(Debug, Error)]
pub enum ResultsError {
    /// It would be overwritten.
    #[error("`{0}` exists: add `--resume` to go on with it, or name another file")]
    Exists(String),
    /// It cannot be opened.
    #[error("`{name}` cannot be opened: {cause}; check the path and its permissions")]
    Open {
        /// The file.
        name: String,
        /// As the kernel says.
        cause: io::Error,
    },
    /// Another one writes to it.
    #[error("another `sandfork map` writes to `{0}`: wait for its end, or name another file")]
    Locked(String),
    /// What is in it is something else.
    #[error("{name}:{line}: {what}; `--resume` needs a file with nothing but results")]
    NotResults {
        /// The file.
        name: String,
        /// Where, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
    /// It could not be read, or put in order.
    #[error("`{name}` cannot be gone on with: {cause}; nothing in it was changed")]
    Unusable {
        /// The file.
        name: String,
        /// As the kernel says.
        cause: io::Error,
    },
    /// A result could not be written.
    #[error("the results cannot be written to {name}: {cause}; {lines} of them are there{hint}")]
    Write {
        /// The file.
        name: String,
        /// As the kernel says.
        cause: io::Error,
        /// How many are there, whole.
        lines: u64,
        /// What to do.
        hint: &'static str,
    },
}

impl ResultsError {
    /// Whether its reader has seen enough, as `head` has.
    pub fn is_broken_pipe(&self) -> bool {
        matches!(self, Self::Write { cause, .. } if cause.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl Results {
    /// The command's own stdout.
    pub fn on_stdout() -> Result<Self, ResultsError> {
        let name = "stdout".to_owned();
        let stdout = io::stdout();
        let shown = if stdout.is_terminal() {
            Shown::ToAPerson
        } else {
            Shown::ToAProgram
        };
        let file = stdout
            .as_fd()
            .try_clone_to_owned()
            .map_err(|cause| open_error(&name, cause))?;
        Ok(Self {
            name,
            file: file.into(),
            shown,
            lines: 0,
            lock: None,
        })
    }

    /// A new file, or a device or pipe that exists.
    pub fn create(path: &Path) -> Result<Self, ResultsError> {
        let name = path.display().to_string();
        let mut options = OpenOptions::new();
        let opened = match options.append(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if is_regular(path) {
                    return Err(ResultsError::Exists(name));
                }
                OpenOptions::new().append(true).open(path)
            }
            opened => opened,
        };
        let file = opened.map_err(|cause| open_error(&name, cause))?;
        let lock = match file.metadata() {
            Ok(metadata) if metadata.is_file() => Some(lock(copy(&file, &name)?, &name)?),
            _ => None,
        };
        Ok(Self {
            name: format!("`{name}`"),
            file,
            shown: Shown::ToAProgram,
            lines: 0,
            lock,
        })
    }

    /// A file that is gone on with, or a new one where there is none; with the ids that have a result in
    /// it.
    pub fn resume(path: &Path) -> Result<(Self, Ids), ResultsError> {
        if !is_regular(path) {
            return Ok((Self::create(path)?, Ids::default()));
        }
        let name = path.display().to_string();
        let found = resume::open(path, &name)?;
        let results = Self {
            name: format!("`{name}`"),
            file: copy(&found.file, &name)?,
            shown: Shown::ToAProgram,
            lines: found.ids.count() as u64,
            lock: Some(found.file),
        };
        Ok((results, found.ids))
    }

    /// Writes one result.
    pub fn write(&mut self, done: &Done) -> Result<(), ResultsError> {
        let mut line = match serde_json::to_string(done) {
            Ok(line) => line,
            Err(error) => return Err(self.write_error(error.into())),
        };
        if self.shown == Shown::ToAPerson {
            line = harmless(&line);
        }
        line.push('\n');
        append(&mut self.file, line.as_bytes()).map_err(|cause| self.write_error(cause))?;
        self.lines += 1;
        Ok(())
    }

    /// Has everything on the disk, where it is one: the kernel may find only then that it is full.
    pub fn finish(&mut self) -> Result<(), ResultsError> {
        match self.file.sync_data() {
            // Not a file: a pipe, a terminal.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced.map_err(|cause| self.write_error(cause)),
        }
    }

    fn write_error(&self, cause: io::Error) -> ResultsError {
        let hint = match self.lock {
            Some(_) => ", and `--resume` goes on behind them when there is room",
            None => "",
        };
        ResultsError::Write {
            name: self.name.clone(),
            cause,
            lines: self.lines,
            hint,
        }
    }
}

/// Appends a line, or nothing: what a full disk left of it is taken back.
fn append(file: &mut File, line: &[u8]) -> io::Result<()> {
    let mut written = 0;
    let failed = loop {
        match file.write(&line[written..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error,
            Ok(0) => break io::ErrorKind::WriteZero.into(),
            Ok(length) => written += length,
        }
        if written == line.len() {
            return Ok(());
        }
    };
    if let Ok(metadata) = file.metadata()
        && metadata.is_file()
    {
        // Where that fails too, `--resume` does it.
        _ = file.set_len(metadata.len().saturating_sub(written as u64));
    }
    Err(failed)
}

/// Takes a file for this process alone, for as long as it is open.
pub fn lock(file: File, name: &str) -> Result<Flock<File>, ResultsError> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => ResultsError::Locked(name.to_owned()),
        errno => open_error(name, errno.into()),
    })
}

pub fn open_error(name: &str, cause: io::Error) -> ResultsError {
    let name = name.to_owned();
    ResultsError::Open { name, cause }
}

fn copy(file: &File, name: &str) -> Result<File, ResultsError> {
    file.try_clone().map_err(|cause| open_error(name, cause))
}

fn is_regular(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_exists_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        drop(Results::create(&path).unwrap());
        let refused = Results::create(&path).unwrap_err();
        assert!(matches!(refused, ResultsError::Exists(_)));
        Results::create(Path::new("/dev/null")).unwrap();
        let missing = Results::create(&directory.path().join("none/results")).unwrap_err();
        assert!(matches!(missing, ResultsError::Open { .. }));
    }

    #[test]
    fn two_do_not_write_to_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        let first = Results::create(&path).unwrap();
        let second = Results::resume(&path).unwrap_err();
        assert!(matches!(second, ResultsError::Locked(_)), "{second}");
        drop(first);
        Results::resume(&path).unwrap();
    }

    #[test]
    fn a_line_that_does_not_fit_leaves_nothing() {
        let mut full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let refused = append(&mut full, b"line\n").unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ENOSPC as i32));
    }
}
