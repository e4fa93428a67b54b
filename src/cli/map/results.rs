//! Writes results, one line each. A line is written completely or not at all.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use crate::batch::{Compact, Done};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use sandfork_jail::sys::closed_stdout::stdout_was_closed;

use super::existing::Existing;
use super::ids::Ids;
use super::resume;
use crate::cli::failure::Failure;
use crate::cli::terminal::HarmlessJson;

/// The size of the write buffer, in bytes. Most lines fit into it.
const PIECE: usize = 64 << 10;

/// An open result file.
#[derive(Debug)]
pub struct Results {
    /// The file's name in messages.
    name: String,
    file: File,
    /// The number of results in the file, including those that a resumed file already had.
    lines: u64,
    form: Form,
    /// Locks a resumable file against other `sandfork map` processes.
    lock: Option<Flock<File>>,
}

/// How much of a result is written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Form {
    /// The full result.
    #[default]
    Full,
    /// Status, output, value, error, and little more.
    Compact,
}

impl Results {
    /// Writes to the command's own stdout.
    pub fn on_stdout() -> Result<Self, Failure> {
        if stdout_was_closed() {
            return Err(Failure::Usage(
                "stdout is closed, and the results would be lost: open it, or name a file with `--output`".to_owned(),
            ));
        }
        let name = "stdout".to_owned();
        let file = io::stdout()
            .as_fd()
            .try_clone_to_owned()
            .map_err(|cause| open_error(&name, &cause))?;
        Ok(Self {
            name,
            file: file.into(),
            lines: 0,
            form: Form::Full,
            lock: None,
        })
    }

    /// Opens a new file, or an existing device or pipe.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let mut options = OpenOptions::new();
        let opened = match options.append(true).create_new(true).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let existing = Existing::find(path);
                if existing.as_ref().is_ok_and(Existing::is_regular) {
                    return Err(Failure::Usage(format!(
                        "`{name}` exists: add `--resume` to continue it, or name another file"
                    )));
                }
                existing.and_then(|existing| existing.open(OpenOptions::new().append(true)))
            }
            opened => opened,
        };
        let file = opened.map_err(|cause| open_error(&name, &cause))?;
        let lock = match file.metadata() {
            Ok(metadata) if metadata.is_file() => Some(lock(copy(&file, &name)?, &name)?),
            _ => None,
        };
        Ok(Self {
            name: format!("`{name}`"),
            file,
            lines: 0,
            form: Form::Full,
            lock,
        })
    }

    /// Opens a file to resume, or creates it. Returns the ids that have a result in the file.
    pub fn resume(path: &Path) -> Result<(Self, Ids), Failure> {
        let name = path.display().to_string();
        let existing = match Existing::find(path) {
            Ok(existing) if existing.is_regular() => existing,
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(open_error(&name, &error));
            }
            _ => return Ok((Self::create(path)?, Ids::default())),
        };
        let found = resume::open(&existing, &name)?;
        let results = Self {
            name: format!("`{name}`"),
            file: copy(&found.file, &name)?,
            lines: found.ids.count() as u64,
            form: Form::Full,
            lock: Some(found.file),
        };
        Ok((results, found.ids))
    }

    /// Sets how much of a result is written.
    #[must_use]
    pub fn form(mut self, form: Form) -> Self {
        self.form = form;
        self
    }

    /// Returns whether the lines may reach a terminal: directly, or through a pipe whose reader writes them to one, as
    /// `cut` does.
    pub fn may_reach_a_terminal(&self) -> bool {
        let kind = self.file.metadata().map(|metadata| metadata.file_type());
        self.file.is_terminal() || kind.map_or(true, |kind| kind.is_fifo() || kind.is_socket())
    }

    /// Returns the name of the output unless it is a file. Writes to a pipe, a terminal or a socket block while nothing
    /// reads it.
    pub fn reader(&self) -> Option<String> {
        let is_file = self
            .file
            .metadata()
            .is_ok_and(|metadata| metadata.is_file());
        (!is_file).then(|| self.name.clone())
    }

    /// Writes one result.
    pub fn write(&mut self, done: &Done) -> Result<(), Failure> {
        let appended = append(&self.file, |line| {
            match self.form {
                Form::Full => serde_json::to_writer(HarmlessJson(&mut *line), done),
                Form::Compact => serde_json::to_writer(HarmlessJson(&mut *line), &Compact(done)),
            }?;
            line.write_all(b"\n")
        });
        appended.map_err(|cause| self.write_error(cause))?;
        self.lines += 1;
        Ok(())
    }

    /// Syncs the file to disk, because the kernel may report a full disk only then.
    pub fn finish(&mut self) -> Result<(), Failure> {
        match self.file.sync_data() {
            // Not a file, but a pipe or a terminal.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            synced => synced.map_err(|cause| self.write_error(cause)),
        }
    }

    fn write_error(&self, cause: io::Error) -> Failure {
        if cause.kind() == io::ErrorKind::BrokenPipe {
            return Failure::Output(cause);
        }
        let hint = match self.lock {
            Some(_) => ", and `--resume` continues after them when there is room",
            None => "",
        };
        Failure::NotWritten(format!(
            "the results cannot be written to {}: {cause}; {} of them were written{hint}",
            self.name, self.lines
        ))
    }
}

/// Appends everything that `write` writes, or nothing: if the disk fills up, removes the partial line. A long line is
/// never in memory as a whole.
fn append(file: &File, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let mut pieces = BufWriter::with_capacity(PIECE, Counted { file, written: 0 });
    let appended = write(&mut pieces).and_then(|()| pieces.flush());
    // Discard the buffered bytes.
    let (counted, _) = pieces.into_parts();
    if appended.is_err()
        && let Ok(metadata) = file.metadata()
        && metadata.is_file()
    {
        // If this fails too, `--resume` removes the partial line.
        _ = file.set_len(metadata.len().saturating_sub(counted.written));
    }
    appended
}

/// A file that counts the bytes written to it.
struct Counted<'f> {
    file: &'f File,
    written: u64,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.file.write(bytes)?;
        self.written += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Locks a file for this process until the file is closed.
pub fn lock(file: File, name: &str) -> Result<Flock<File>, Failure> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| match errno {
        Errno::EWOULDBLOCK => is_locked(name),
        errno => open_error(name, &errno.into()),
    })
}

/// Returns the error for a file to which another process writes.
pub fn is_locked(name: &str) -> Failure {
    Failure::Usage(format!(
        "another `sandfork map` writes to `{name}`: wait for its end, or name another file"
    ))
}

pub fn open_error(name: &str, cause: &io::Error) -> Failure {
    Failure::Usage(format!(
        "`{name}` cannot be opened: {cause}; check the path and its permissions"
    ))
}

fn copy(file: &File, name: &str) -> Result<File, Failure> {
    file.try_clone().map_err(|cause| open_error(name, &cause))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn existing_file_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        drop(Results::create(&path).unwrap());
        let refused = Results::create(&path).unwrap_err().to_string();
        assert!(refused.contains("exists: add `--resume`"), "{refused}");
        Results::create(Path::new("/dev/null")).unwrap();
        let missing = Results::create(&directory.path().join("none/results")).unwrap_err();
        assert!(missing.to_string().contains("cannot be opened"));
    }

    #[test]
    fn locked_file_is_rejected() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results");
        let first = Results::create(&path).unwrap();
        let second = Results::resume(&path).unwrap_err().to_string();
        assert!(second.starts_with("another `sandfork map`"), "{second}");
        drop(first);
        Results::resume(&path).unwrap();
    }

    #[test]
    fn line_on_a_full_disk_is_not_written() {
        let full = OpenOptions::new().append(true).open("/dev/full").unwrap();
        let refused = append(&full, |line| line.write_all(b"line\n")).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(Errno::ENOSPC as i32));
    }
}
