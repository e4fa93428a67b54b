//! Carries out a caller's requests for the files of its session.

use std::fs::File;
use std::os::fd::AsFd;

use nix::sys::stat::fstat;

use super::caller::{Caller, Payload};
use super::life::WorkerLife;
use super::worker_io::{JailedWorker, WorkerIo};
use crate::protocol::caller::{ClientEvent, FileAnswer, FileOperation, FileRequest};
use crate::supervisor::files::{Contents, FileError, GuestPath, Parents, Removal, WorkDir};
use crate::supervisor::session_dir::SessionDirectory;

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// Handles a file request, which is also allowed while a cell runs.
    pub(super) fn file(&mut self, request: &FileRequest, caller: &mut dyn Caller) {
        let id = request.id;
        match self.io.perform_file_request(request) {
            Ok(FileResult { file, answer, .. }) => {
                let payload = file.map(|file| Payload::passed(file.into()));
                caller.answer(ClientEvent::File(answer), payload.unwrap_or_default());
            }
            Err(error) => caller.refuse(Some(id), error.into()),
        }
    }
}

impl<'a> JailedWorker<'a> {
    /// Returns the work directory of the worker.
    pub(super) fn work_dir(&self) -> Result<WorkDir<'a>, FileError> {
        let worker = self.worker();
        let root = self.verified.session.as_ref().map(SessionDirectory::path);
        let root = root.unwrap_or(&self.context.jail.worker.cwd);
        // The worker passes this descriptor before its jail counts as complete.
        let handle = worker.directories.first().ok_or(FileError::Gone)?;
        Ok(WorkDir::new(handle.as_fd(), root, worker.ids))
    }
}

/// Carries out a file request.
pub fn perform_file_request(
    work: &WorkDir,
    request: &FileRequest,
) -> Result<FileResult, FileError> {
    let path = work.path(&request.path)?;
    let mut done = FileResult::default();
    done.answer.id = request.id;
    match request.op {
        FileOperation::OpenRead => {
            let (file, size) = work.open_read(&path)?;
            (done.file, done.answer.size) = (Some(file), Some(size));
        }
        FileOperation::OpenWrite { append } => {
            let contents = if append {
                Contents::Kept
            } else {
                Contents::Replaced
            };
            let file = work.open_write(&path, contents)?;
            // fstat(2) does not fail for an open file.
            done.lent = fstat(&file).ok().map(|stat| (stat.st_ino, path));
            done.file = Some(file);
        }
        FileOperation::List => {
            done.answer.entries = Some(work.list(&path)?);
        }
        FileOperation::Stat => done.answer.entry = Some(work.stat(&path)?),
        FileOperation::Remove { recursive } => {
            let removal = if recursive {
                Removal::Tree
            } else {
                Removal::Single
            };
            work.remove(&path, removal)?;
        }
        FileOperation::MakeDir { parents } => {
            let parents = if parents {
                Parents::Made
            } else {
                Parents::Required
            };
            work.make_dir(&path, parents)?;
        }
    }
    Ok(done)
}

/// The result of a file request.
#[derive(Default)]
pub struct FileResult {
    file: Option<File>,
    answer: FileAnswer,
    /// The inode and the path of the file that was opened for writing, if one was.
    pub lent: Option<(u64, GuestPath)>,
}
