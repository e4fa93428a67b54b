//! The files of a session, from outside.

use std::fs::File;

use super::{Session, SessionError, next};
use crate::error::Error;
use crate::protocol::caller::{Answer, Ask, FileEntry, FileOperation, FileRequest};
use crate::supervisor::Payload;
use crate::supervisor::files::{Contents, Parents, Removal};

/// Its files. A path is relative to the session's work directory, or begins with it.
///
/// No link of the guest's is followed, and nothing but regular files is opened: whatever the guest does
/// meanwhile, what is read is in its work directory, and nothing waits for it.
impl Session {
    /// Opens a file for reading; with its size now, bytes. The guest may go on changing it.
    ///
    /// # Errors
    ///
    /// When it is not there or no regular file ([`Error::errno`] tells a program), or the session has
    /// ended.
    pub fn open_read(&mut self, path: &str) -> Result<(File, u64), Error> {
        let done = self.file(path, FileOperation::OpenRead)?;
        let file = done.file.ok_or(SessionError::Lost)?;
        Ok((file, done.size.unwrap_or(0)))
    }

    /// Opens a file for writing, and makes it if it is not there. What is written counts against
    /// `filesystem.work_size`.
    ///
    /// # Errors
    ///
    /// As [`open_read`](Self::open_read), and when the work directory is full.
    pub fn open_write(&mut self, path: &str, contents: Contents) -> Result<File, Error> {
        let append = contents == Contents::Kept;
        let done = self.file(path, FileOperation::OpenWrite { append })?;
        Ok(done.file.ok_or(SessionError::Lost)?)
    }

    /// The entries of a directory, by name.
    ///
    /// # Errors
    ///
    /// As [`open_read`](Self::open_read).
    pub fn list(&mut self, path: &str) -> Result<Vec<FileEntry>, Error> {
        let done = self.file(path, FileOperation::List)?;
        Ok(done.entries.unwrap_or_default())
    }

    /// What is at a path; of a link, the link itself.
    ///
    /// # Errors
    ///
    /// As [`open_read`](Self::open_read).
    pub fn stat(&mut self, path: &str) -> Result<FileEntry, Error> {
        let done = self.file(path, FileOperation::Stat)?;
        Ok(done.entry.ok_or(SessionError::Lost)?)
    }

    /// Removes what is at a path; of a link, the link itself.
    ///
    /// # Errors
    ///
    /// As [`open_read`](Self::open_read). A tree may be partly gone then.
    pub fn remove(&mut self, path: &str, removal: Removal) -> Result<(), Error> {
        let recursive = removal == Removal::Tree;
        self.file(path, FileOperation::Remove { recursive })
            .map(drop)
    }

    /// Makes a directory.
    ///
    /// # Errors
    ///
    /// As [`open_read`](Self::open_read).
    pub fn make_dir(&mut self, path: &str, parents: Parents) -> Result<(), Error> {
        let parents = parents == Parents::Made;
        self.file(path, FileOperation::MakeDir { parents })
            .map(drop)
    }

    fn file(&mut self, path: &str, op: FileOperation) -> Result<Done, Error> {
        let id = self.id();
        let request = FileRequest {
            id,
            path: path.to_owned(),
            op,
        };
        self.asker.ask(Ask::File(request), Payload::default());
        loop {
            let (answer, payload) = next(&self.answers)?;
            match answer {
                Answer::File {
                    size,
                    entry,
                    entries,
                    ..
                } => {
                    let file = payload.passed.map(File::from);
                    return Ok(Done {
                        file,
                        size,
                        entry,
                        entries,
                    });
                }
                Answer::Error {
                    error,
                    message,
                    errno,
                    ..
                } => {
                    let error = match errno {
                        Some(errno) => SessionError::File { message, errno },
                        None => SessionError::told(error, message),
                    };
                    return Err(error.into());
                }
                _ => {}
            }
        }
    }
}

struct Done {
    file: Option<File>,
    size: Option<u64>,
    entry: Option<FileEntry>,
    entries: Option<Vec<FileEntry>>,
}
