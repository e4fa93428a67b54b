//! `--in` and `--out`: files that the command copies into a fresh work directory, and out of it.
//!
//! The guest gets copies, and nothing of the host's file system. What it leaves behind is hostile: a
//! name may be a link, a pipe or a directory by then, so only a regular file is read, through
//! [`WorkDir`], and at most as much as the policy lets a file be.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use thiserror::Error;

use super::args::TransferChoice;
use super::failure::Failure;
use crate::environments::directory_of;
use crate::outcome::{Ending, Outcome};
use crate::policy::Policy;
use crate::supervisor::files::{GuestPath, WorkDir};
use crate::supervisor::{Part, open_regular};
use crate::{Error, Request};

/// Why a file could not be copied.
#[derive(Debug, Error)]
pub enum TransferError {
    /// A file to copy in does not exist.
    #[error("--in: `{0}` does not exist; check the path")]
    NotThere(PathBuf),
    /// A file to copy in cannot be read.
    #[error("--in: `{path}` cannot be read: {cause}; copy it to a file that can")]
    Unreadable {
        /// The path.
        path: PathBuf,
        /// The kernel's error, or what it is.
        cause: io::Error,
    },
    /// A file to copy in is a directory.
    #[error(
        "--in: `{0}` is a directory; name its files, or show it with `--set filesystem.read=PATH`"
    )]
    Directory(PathBuf),
    /// Two files to copy in have the same name there.
    #[error(
        "--in: `{first}` and `{second}` would both be `{name}` in the work directory; rename one"
    )]
    SameName {
        /// The name in the work directory.
        name: String,
        /// The first path.
        first: PathBuf,
        /// The other path.
        second: PathBuf,
    },
    /// A path has no name that the guest's file could have.
    #[error("{option}: `{path}` does not name a file: {cause}")]
    Name {
        /// The option.
        option: &'static str,
        /// The path.
        path: PathBuf,
        /// Why it names none.
        cause: String,
    },
    /// More than the work directory holds.
    #[error(
        "--in: `{path}` does not fit into the work directory of {room} bytes; \
         `--set filesystem.work_size=SIZE` makes it larger"
    )]
    TooLarge {
        /// The path.
        path: PathBuf,
        /// The size of the work directory.
        room: u64,
    },
    /// A file to copy out is larger than the policy lets one be.
    #[error(
        "--out: `{name}` has {size} bytes, more than the {room} that the policy lets a file have; it was not copied"
    )]
    OutTooLarge {
        /// The name in the work directory.
        name: GuestPath,
        /// Its size.
        size: u64,
        /// The largest that is copied.
        room: u64,
    },
    /// A file to copy out cannot be put where it belongs.
    #[error("--out: `{path}` cannot be written: {cause}")]
    Unwritable {
        /// The path.
        path: PathBuf,
        /// Why.
        cause: String,
    },
    /// The guest left no such file.
    #[error("--out: the guest left no file to copy: {cause}")]
    Missing {
        /// Why it cannot be read.
        cause: String,
    },
}

impl TransferError {
    /// Whether it was found before anything ran.
    pub fn is_usage(&self) -> bool {
        !matches!(
            self,
            Self::Missing { .. } | Self::OutTooLarge { .. } | Self::Unwritable { .. }
        )
    }
}

/// Adds the files of `--in` to a request.
pub fn with_inputs(
    mut request: Request,
    paths: &[PathBuf],
    policy: &Policy,
) -> Result<Request, TransferError> {
    let room = policy.limits().work_size();
    let mut left = room;
    let mut names: BTreeMap<String, &PathBuf> = BTreeMap::new();
    for path in paths {
        let name = name_in_sandbox("--in", path)?;
        if let Some(first) = names.insert(name.to_string(), path) {
            return Err(TransferError::SameName {
                name: name.to_string(),
                first: first.clone(),
                second: path.clone(),
            });
        }
        let mut contents = Vec::new();
        open_regular(path)
            .and_then(|file| file.take(left + 1).read_to_end(&mut contents))
            .map_err(|cause| unreadable(path, cause))?;
        let Some(rest) = left.checked_sub(contents.len() as u64) else {
            let path = path.clone();
            return Err(TransferError::TooLarge { path, room });
        };
        left = rest;
        request = request.file(name, contents);
    }
    Ok(request)
}

/// The name of a file in the work directory: its path as the caller writes it, if that is relative
/// and goes down, or else its last name.
fn name_in_sandbox(option: &'static str, path: &Path) -> Result<GuestPath, TransferError> {
    let goes_down = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    let refused = |cause: String| TransferError::Name {
        option,
        path: path.to_owned(),
        cause,
    };
    let name = match path.file_name() {
        Some(_) if path.components().all(goes_down) => path.to_str(),
        Some(last) => last.to_str(),
        None => return Err(refused("it has no last name".to_owned())),
    };
    let name = name.ok_or_else(|| refused("it is not UTF-8".to_owned()))?;
    GuestPath::of_file(name).map_err(|error: Error| refused(error.to_string()))
}

/// The files of `--out`, which are written after the run.
pub struct Outputs {
    wanted: Vec<(GuestPath, PathBuf)>,
    /// The largest file that is copied. One with holes may be larger than the work directory.
    room: u64,
    failed: Mutex<Option<TransferError>>,
}

impl Outputs {
    /// Checks where the files are to be written, before anything runs.
    pub fn new(choice: &TransferChoice, policy: &Policy) -> Result<Self, TransferError> {
        let wanted = |path: &PathBuf| -> Result<_, TransferError> {
            let name = name_in_sandbox("--out", path)?;
            check_destination(path)?;
            Ok((name, path.clone()))
        };
        Ok(Self {
            wanted: choice
                .outputs
                .iter()
                .map(wanted)
                .collect::<Result<_, _>>()?,
            room: policy.limits().work_size().max(policy.limits().file_size()),
            failed: Mutex::default(),
        })
    }

    /// Whether there are any.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Copies the files out, if the guest ended by itself. One that was ended has left files that may
    /// be half written, and a caller's earlier results stay.
    pub fn collect(&self, work: &WorkDir, outcome: &Outcome) {
        if !matches!(
            outcome.ending(),
            Ending::Ok | Ending::Exception | Ending::Exit(_)
        ) {
            return;
        }
        for (name, path) in &self.wanted {
            match self.copy(work, name, path) {
                Ok(()) => {}
                // A guest that failed says itself why a file is missing.
                Err(TransferError::Missing { .. }) if outcome.exit_code() != 0 => {}
                Err(error) => {
                    let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
                    failed.get_or_insert(error);
                }
            }
        }
    }

    /// The guest's exit code, or the first failure.
    pub fn exit_code(&self, outcome: &Outcome) -> Result<u8, Failure> {
        let mut failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed
            .take()
            .map_or(Ok(outcome.exit_code()), |error| Err(error.into()))
    }

    fn copy(&self, work: &WorkDir, name: &GuestPath, path: &Path) -> Result<(), TransferError> {
        let missing = |cause: String| TransferError::Missing { cause };
        let opened = work.open_read(name);
        let (file, size) = opened.map_err(|error| missing(error.to_string()))?;
        if size > self.room {
            let (name, room) = (name.clone(), self.room);
            return Err(TransferError::OutTooLarge { name, size, room });
        }
        check_destination(path)?;
        replace(path, file.take(size)).map_err(|error| unwritable(path, &error))
    }
}

fn unreadable(path: &Path, cause: io::Error) -> TransferError {
    let path = path.to_owned();
    match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => TransferError::NotThere(path),
        io::ErrorKind::IsADirectory => TransferError::Directory(path),
        _ => TransferError::Unreadable { path, cause },
    }
}

fn unwritable(path: &Path, error: &io::Error) -> TransferError {
    TransferError::Unwritable {
        path: path.to_owned(),
        cause: error.to_string(),
    }
}

/// Refuses a place that nothing may replace. Its directory must exist.
fn check_destination(path: &Path) -> Result<(), TransferError> {
    let checked = Part::check(path).and_then(|()| {
        let there = directory_of(path).is_dir().then_some(());
        there.ok_or("its directory does not exist")
    });
    checked.map_err(|cause| TransferError::Name {
        option: "--out",
        path: path.to_owned(),
        cause: cause.to_owned(),
    })
}

/// Writes a file under another name and renames it, so that a reader sees the old one or the whole
/// new one. It belongs to the caller, and an existing file's mode stays.
fn replace(path: &Path, mut contents: impl Read) -> io::Result<()> {
    let mode = fs::metadata(path).map(|found| found.permissions()).ok();
    let mut part = Part::create(path, 0o666)?;
    io::copy(&mut contents, &mut part.file)?;
    if let Some(mode) = mode {
        part.file.set_permissions(mode)?;
    }
    part.finish(path)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn what_a_killed_command_left_is_in_no_ones_way() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result");
        std::mem::forget(Part::create(&path, 0o666).unwrap());
        replace(&path, &b"whole"[..]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
