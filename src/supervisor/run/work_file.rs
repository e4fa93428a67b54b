//! Files that are in the work directory when a guest starts.

use std::fmt;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use nix::sys::stat::{Mode, mkdirat};

use crate::jail::program::HostIds;
use crate::supervisor::as_guest::as_guest;
use crate::supervisor::error::SupervisorError;

/// A path beneath the work directory, by names only: `data/input.csv`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkPath(String);

/// Why a text is no path beneath the work directory.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WorkPathError {
    /// It names nothing.
    #[error("the path of a file is empty: name it, such as `data/input.csv`")]
    Empty,
    /// It leads elsewhere, or may.
    #[error("`{0}` is not beneath the work directory: write names only, such as `data/input.csv`")]
    Elsewhere(String),
    /// A name is longer than any file system takes (`NAME_MAX`), or all of them are (`PATH_MAX`).
    #[error("`{0}...` is too long: a name has at most 255 bytes, a path 4095")]
    TooLong(String),
}

impl WorkPath {
    /// Reads a path; `/work/` before it may be left out.
    ///
    /// # Errors
    ///
    /// When it is anything but names and slashes: empty, absolute elsewhere, or with `.`, `..` or a
    /// zero byte in it.
    pub fn parse(text: &str) -> Result<Self, WorkPathError> {
        const PATH_MAX: usize = 4095;
        const NAME_MAX: usize = 255;
        let path = text.strip_prefix("/work/").unwrap_or(text);
        if path.is_empty() {
            return Err(WorkPathError::Empty);
        }
        if path.len() > PATH_MAX || path.split('/').any(|name| name.len() > NAME_MAX) {
            return Err(WorkPathError::TooLong(text.chars().take(40).collect()));
        }
        let leads = |name| matches!(name, "" | "." | "..");
        if path.split('/').any(leads) || path.contains('\0') {
            return Err(WorkPathError::Elsewhere(text.to_owned()));
        }
        Ok(Self(path.to_owned()))
    }

    /// Every directory above it, from the outermost.
    fn parents(&self) -> impl Iterator<Item = &str> {
        self.0.match_indices('/').map(|(end, _)| &self.0[..end])
    }
}

impl fmt::Display for WorkPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A file and what is in it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WorkFile {
    pub path: WorkPath,
    pub contents: Vec<u8>,
}

/// Puts files into the work directory of a worker that has run no guest code yet, as the guest's own.
/// `room` is what the work directory may hold, bytes: not every one has a quota that refuses more.
pub fn place(
    files: &[WorkFile],
    work: &OwnedFd,
    guest: Option<HostIds>,
    room: u64,
) -> Result<(), SupervisorError> {
    if files.is_empty() {
        return Ok(());
    }
    let total: u64 = files.iter().map(|file| file.contents.len() as u64).sum();
    if total > room {
        return Err(SupervisorError::FilesTooLarge { total, room });
    }
    let mut path = &files[0].path;
    let placed = as_guest(guest, || {
        files.iter().try_for_each(|file| {
            path = &file.path;
            write(work.as_fd(), file)
        })
    });
    placed.map_err(|errno| match errno {
        Errno::ENOSPC | Errno::EDQUOT => SupervisorError::FilesTooLarge { total, room },
        errno => SupervisorError::FileNotPlaced {
            path: path.to_string(),
            errno,
        },
    })
}

fn write(work: BorrowedFd, file: &WorkFile) -> Result<(), Errno> {
    for parent in file.path.parents() {
        match make_directory(work, parent) {
            Err(Errno::EEXIST) => {}
            other => other?,
        }
    }
    // No other writer is there yet, so that one that exists is a request's own mistake.
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL;
    let opened = open_beneath(work, &file.path.0, flags, Mode::from_bits_truncate(0o644))?;
    File::from(opened)
        .write_all(&file.contents)
        .map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or(libc::EIO)))
}

fn make_directory(work: BorrowedFd, path: &str) -> Result<(), Errno> {
    let mode = Mode::from_bits_truncate(0o755);
    match path.rsplit_once('/') {
        None => mkdirat(work, path, mode),
        Some((parent, name)) => {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
            mkdirat(
                open_beneath(work, parent, flags, Mode::empty())?,
                name,
                mode,
            )
        }
    }
}

/// Opens what is beneath `work`, through no link.
fn open_beneath(work: BorrowedFd, path: &str, flags: OFlag, mode: Mode) -> Result<OwnedFd, Errno> {
    let beneath = ResolveFlag::RESOLVE_BENEATH
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_NO_MAGICLINKS;
    let how = OpenHow::new()
        .flags(flags | OFlag::O_CLOEXEC)
        .mode(mode)
        .resolve(beneath);
    openat2(work, path, how)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::*;

    fn file(path: &str, contents: &str) -> WorkFile {
        WorkFile {
            path: WorkPath::parse(path).unwrap(),
            contents: contents.into(),
        }
    }

    fn place_in(directory: &Path, files: &[WorkFile]) -> Result<(), String> {
        let work = File::open(directory).unwrap().into();
        place(files, &work, None, 1000).map_err(|error| error.to_string())
    }

    #[test]
    fn a_path_is_names() {
        for (text, path) in [
            ("a", "a"),
            ("a/b.txt", "a/b.txt"),
            ("/work/a", "a"),
            ("...", "..."),
            ("work/a", "work/a"),
        ] {
            assert_eq!(WorkPath::parse(text).unwrap().to_string(), path);
        }
        let longest = "a/".repeat(2047) + "a";
        assert_eq!(WorkPath::parse(&longest).unwrap().parents().count(), 2047);
    }

    #[test]
    fn a_path_that_leads_elsewhere_is_refused() {
        for text in [
            "/etc/passwd",
            "/work",
            "../a",
            "a/../b",
            "./a",
            "a//b",
            "a/",
            "/",
            "a\0b",
            "/work//a",
        ] {
            let refused = WorkPath::parse(text);
            assert!(
                matches!(refused, Err(WorkPathError::Elsewhere(_))),
                "{text}: {refused:?}"
            );
        }
        assert_eq!(WorkPath::parse(""), Err(WorkPathError::Empty));
        assert_eq!(WorkPath::parse("/work/"), Err(WorkPathError::Empty));
        for long in ["a".repeat(256), "a/".repeat(2048) + "a"] {
            let refused = WorkPath::parse(&long);
            assert!(matches!(refused, Err(WorkPathError::TooLong(_))), "{long}");
        }
    }

    #[test]
    fn files_get_their_directories() {
        let work = tempfile::tempdir().unwrap();
        let files = [file("a/b/c", "1"), file("a/b/d", "2"), file("e", "")];
        place_in(work.path(), &files).unwrap();
        for (path, contents) in [("a/b/c", "1"), ("a/b/d", "2"), ("e", "")] {
            let found = fs::read_to_string(work.path().join(path)).unwrap();
            assert_eq!(found, contents);
        }
    }

    #[test]
    fn what_cannot_be_placed_is_named() {
        let work = tempfile::tempdir().unwrap();
        let refusal = |files: &[WorkFile]| place_in(work.path(), files).unwrap_err();
        let twice = refusal(&[file("a", "1"), file("a", "2")]);
        assert!(twice.contains("`a`") && twice.contains("exists"), "{twice}");
        let beneath_a_file = refusal(&[file("b", "1"), file("b/c", "2")]);
        assert!(beneath_a_file.contains("`b/c`"), "{beneath_a_file}");
        let large = refusal(&[file("c", &"x".repeat(600)), file("d", &"x".repeat(401))]);
        assert!(large.contains("1001 bytes"), "{large}");
        assert!(!work.path().join("c").exists());
    }

    #[test]
    fn no_link_is_followed() {
        let (work, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        symlink(elsewhere.path(), work.path().join("link")).unwrap();
        symlink(elsewhere.path().join("new"), work.path().join("file")).unwrap();
        for path in ["link/new", "link/sub/new", "file"] {
            place_in(work.path(), &[file(path, "x")]).unwrap_err();
        }
        assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    }
}
