//! Implements `--in` and `--out`: copies files into a fresh work directory, and out of it.
//!
//! The guest gets copies, and nothing of the host's file system. The files that it leaves are hostile: by then a name
//! may be a link, a pipe or a directory. So only regular files are read, through [`WorkDir`], and at most as much as
//! the policy allows a file to have.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Component, Path, PathBuf};
use std::sync::Mutex;

use super::args::TransferChoice;
use super::failure::Failure;
use crate::Request;
use crate::environments::directory_of;
use crate::outcome::{Ending, Outcome};
use crate::policy::Policy;
use crate::supervisor::files::{GuestPath, WorkDir};
use crate::supervisor::{Part, open_regular};
use crate::waiters::lock;

/// Adds the files of `--in` to a request.
pub fn with_inputs(
    mut request: Request,
    paths: &[PathBuf],
    policy: &Policy,
) -> Result<Request, Failure> {
    let room = policy.limits.work_size();
    let mut left = room;
    let mut names: BTreeMap<String, &PathBuf> = BTreeMap::new();
    for path in paths {
        let shown = path.display();
        let name = name_in_sandbox("--in", path)?;
        if let Some(first) = names.insert(name.to_string(), path) {
            return Err(Failure::Usage(format!(
                "--in: `{}` and `{shown}` would both be `{name}` in the work directory; rename one",
                first.display()
            )));
        }
        let mut contents = Vec::new();
        open_regular(path)
            .and_then(|file| file.take(left + 1).read_to_end(&mut contents))
            .map_err(|cause| unreadable(path, &cause))?;
        let Some(rest) = left.checked_sub(contents.len() as u64) else {
            return Err(Failure::Usage(format!(
                "--in: `{shown}` does not fit into the work directory of {room} bytes; \
                 `--set filesystem.work_size=SIZE` makes it larger"
            )));
        };
        left = rest;
        request = request.file(name, contents);
    }
    Ok(request)
}

/// Returns the name of a file in the work directory: the path as the caller wrote it if it is relative without `..`, or
/// else its file name.
fn name_in_sandbox(option: &str, path: &Path) -> Result<GuestPath, Failure> {
    let goes_down = |part| matches!(part, Component::Normal(_) | Component::CurDir);
    let name = match path.file_name() {
        Some(_) if path.components().all(goes_down) => path.to_str(),
        Some(last) => last.to_str(),
        None => return Err(names_no_file(option, path, "it has no file name")),
    };
    let name = name.ok_or_else(|| names_no_file(option, path, "it is not UTF-8"))?;
    let name = GuestPath::of_file(name);
    name.map_err(|error| Failure::Usage(format!("{option}: {error}")))
}

fn names_no_file(option: &str, path: &Path, cause: &str) -> Failure {
    let path = path.display();
    Failure::Usage(format!("{option}: `{path}` does not name a file: {cause}"))
}

/// The files of `--out`, which are written after the run.
pub struct Outputs {
    wanted: Vec<(GuestPath, PathBuf)>,
    /// The maximum size of a copied file, in bytes. A sparse file may be larger than the work directory.
    room: u64,
    failed: Mutex<Option<Failure>>,
}

impl Outputs {
    /// Checks the destinations of the files before anything runs.
    pub fn new(choice: &TransferChoice, policy: &Policy) -> Result<Self, Failure> {
        let wanted = |path: &PathBuf| -> Result<_, Failure> {
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
            room: policy.limits.work_size().max(policy.limits.file_size()),
            failed: Mutex::default(),
        })
    }

    /// Returns whether no file is to be copied out.
    pub fn is_empty(&self) -> bool {
        self.wanted.is_empty()
    }

    /// Copies the files out if the guest ended by itself. A guest that was killed may have left incomplete files, so
    /// the caller's earlier results stay.
    pub fn collect(&self, work: &WorkDir, outcome: &Outcome) {
        if !matches!(
            outcome.ending(),
            Ending::Ok | Ending::Exception | Ending::Exit(_)
        ) {
            return;
        }
        for (name, path) in &self.wanted {
            if let Err(error) = self.copy(work, outcome, name, path) {
                let mut failed = lock(&self.failed);
                failed.get_or_insert(error);
            }
        }
    }

    /// Returns the guest's exit code, or the first failure.
    pub fn exit_code(&self, outcome: &Outcome) -> Result<u8, Failure> {
        let mut failed = lock(&self.failed);
        failed.take().map_or(Ok(outcome.exit_code()), Err)
    }

    fn copy(
        &self,
        work: &WorkDir,
        outcome: &Outcome,
        name: &GuestPath,
        path: &Path,
    ) -> Result<(), Failure> {
        let failed = |why: String| Err(Failure::NotWritten(format!("--out: {why}")));
        let (file, size) = match work.open_read(name) {
            Ok(opened) => opened,
            // A guest that failed has reported why a file is missing.
            Err(_) if outcome.exit_code() != 0 => return Ok(()),
            Err(error) => return failed(format!("the guest left no file to copy: {error}")),
        };
        let room = self.room;
        if size > room {
            return failed(format!(
                "`{name}` has {size} bytes, more than the {room} that the policy allows for a file; it was not copied"
            ));
        }
        check_destination(path)?;
        let replaced = replace(path, file.take(size));
        replaced.or_else(|error| failed(format!("`{}` cannot be written: {error}", path.display())))
    }
}

fn unreadable(path: &Path, cause: &io::Error) -> Failure {
    let why = match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            "does not exist; check the path".to_owned()
        }
        io::ErrorKind::IsADirectory => {
            "is a directory; name its files, or show it with `--set filesystem.read=PATH`"
                .to_owned()
        }
        _ => format!("cannot be read: {cause}; copy it to a readable file"),
    };
    Failure::Usage(format!("--in: `{}` {why}", path.display()))
}

/// Rejects a destination that cannot be replaced, or whose directory does not exist.
fn check_destination(path: &Path) -> Result<(), Failure> {
    let checked = Part::check(path).and_then(|()| {
        let there = directory_of(path).is_dir().then_some(());
        there.ok_or("its directory does not exist")
    });
    checked.map_err(|cause| names_no_file("--out", path, cause))
}

/// Writes a temporary file and renames it, so that a reader sees the old or the complete new file. The file belongs to
/// the caller, and keeps the mode of the file that it replaces.
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
    fn leftover_part_of_a_killed_command_is_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("result");
        std::mem::forget(Part::create(&path, 0o666).unwrap());
        replace(&path, &b"whole"[..]).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
