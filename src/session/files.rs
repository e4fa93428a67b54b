//! Reads and changes a session's files from outside the sandbox.

use std::fs::File;

use super::Session;
use super::caller::thread_ended;
use crate::error::Error;
use crate::protocol::caller::{
    ClientEvent, ClientRequest, FileAnswer, FileEntry, FileOperation, FileRequest,
};
use crate::supervisor::Payload;
use crate::supervisor::files::{Contents, Parents, Removal};

/// Methods for the session's files. A path is relative to the session's work directory, or starts with the path of
/// that directory.
///
/// These methods follow no symbolic links and open only regular files. A guest that changes its files meanwhile cannot
/// make them leave its work directory or block.
impl Session {
    /// Opens a file for reading. Returns the file and its current size in bytes. The guest may still change the file.
    ///
    /// # Errors
    ///
    /// If the file does not exist or is not a regular file ([`Error::errno`] returns the errno), or if the session has
    /// ended.
    pub fn open_read(&mut self, path: &str) -> Result<(File, u64), Error> {
        let (file, answer) = self.file(path, FileOperation::OpenRead)?;
        Ok((file.ok_or_else(thread_ended)?, answer.size.unwrap_or(0)))
    }

    /// Opens a file for writing, and creates it if it does not exist. Written bytes count against
    /// `filesystem.work_size`.
    ///
    /// # Errors
    ///
    /// As [`open_read`](Self::open_read), and if the work directory is full.
    pub fn open_write(&mut self, path: &str, contents: Contents) -> Result<File, Error> {
        let append = contents == Contents::Kept;
        let (file, _) = self.file(path, FileOperation::OpenWrite { append })?;
        file.ok_or_else(thread_ended)
    }

    /// Returns the entries of a directory, sorted by name.
    ///
    /// # Errors
    ///
    /// As [`open_read`](Self::open_read).
    pub fn list(&mut self, path: &str) -> Result<Vec<FileEntry>, Error> {
        let (_, answer) = self.file(path, FileOperation::List)?;
        Ok(answer.entries.unwrap_or_default())
    }

    /// Describes the entry at a path. A symbolic link is described itself.
    ///
    /// # Errors
    ///
    /// As [`open_read`](Self::open_read).
    pub fn stat(&mut self, path: &str) -> Result<FileEntry, Error> {
        let (_, answer) = self.file(path, FileOperation::Stat)?;
        answer.entry.ok_or_else(thread_ended)
    }

    /// Removes the entry at a path. A symbolic link is removed itself.
    ///
    /// # Errors
    ///
    /// As [`open_read`](Self::open_read). Part of a directory tree may have been removed.
    pub fn remove(&mut self, path: &str, removal: Removal) -> Result<(), Error> {
        let recursive = removal == Removal::Tree;
        self.file(path, FileOperation::Remove { recursive })
            .map(drop)
    }

    /// Creates a directory.
    ///
    /// # Errors
    ///
    /// As [`open_read`](Self::open_read).
    pub fn make_dir(&mut self, path: &str, parents: Parents) -> Result<(), Error> {
        let parents = parents == Parents::Made;
        self.file(path, FileOperation::MakeDir { parents })
            .map(drop)
    }

    fn file(&mut self, path: &str, op: FileOperation) -> Result<(Option<File>, FileAnswer), Error> {
        let id = self.id();
        let request = FileRequest {
            id,
            path: path.to_owned(),
            op,
        };
        self.requests
            .send(ClientRequest::File(request), Payload::default());
        loop {
            let (event, payload) = self.events.next(id)?;
            if let ClientEvent::File(answer) = event {
                return Ok((payload.passed.map(File::from), answer));
            }
        }
    }
}
