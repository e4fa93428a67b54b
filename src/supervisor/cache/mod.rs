//! Files that are kept for later processes of this user, in the user's cache directory.
//!
//! What is kept saves time and decides nothing. A file is read only if this user alone can have written it:
//! the file and its directory belong to the user, no one else may write to them, and no one else can put another
//! directory in that place. Every failure here means only that the work is done again.

mod error;
mod fonts;
mod key;
mod start;

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, RenameFlags, openat, renameat2};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use sha2::{Digest, Sha256};

use super::random::random;
use crate::host::{cache_directory, check_private, may_be_made};
use sandfork_jail::sys::{sealed, write_signals};

pub use self::error::Unused;
pub use self::fonts::FontCache;
pub use self::key::snapshot_key;
pub use self::start::StartCache;

/// What a kind of files has in common.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// The beginning of their names, with the version of their contents.
    prefix: &'static str,
    /// The largest file, bytes.
    most_bytes: u64,
    /// How many files are kept.
    most_files: usize,
}

/// How long a process may take to write a file, seconds. One that is not whole by then is removed.
const LONGEST_STORE: i64 = 3600;

/// Bytes that show whether there is room for a file.
const TRIAL: usize = 64 << 10;

/// A file in the user's cache directory. It may not exist.
#[derive(Clone, Debug)]
struct CacheFile {
    kind: Kind,
    directory: PathBuf,
    name: OsString,
}

/// The directory in which files are kept, or why none are.
pub fn kept_in() -> Result<PathBuf, Unused> {
    let directory = cache_directory().ok_or(Unused::NoHome)?;
    match open_directory(&directory) {
        // One that this user may not even look for is there or not.
        Err(Unused::Io(_, cause)) if is_unseen(&cause) => {}
        Err(why) => return Err(why),
        Ok(opened) => {
            let tried = try_to_write(&opened);
            tried.map_err(|cause| Unused::io(&directory, cause))?;
        }
    }
    may_be_made(&directory)?;
    Ok(directory)
}

/// Writes a file, and removes it: a disk that is full may have room for its name.
fn try_to_write(directory: &File) -> io::Result<()> {
    let name = OsString::from(format!(".doctor.{:016x}", u64::from_ne_bytes(random()?)));
    let written = write_new(directory, &name, &vec![0; TRIAL]);
    let removed = unlinkat(directory, &*name, UnlinkatFlags::NoRemoveDir);
    written?;
    Ok(removed?)
}

fn is_unseen(cause: &io::Error) -> bool {
    use io::ErrorKind::{NotFound, PermissionDenied};
    matches!(cause.kind(), NotFound | PermissionDenied)
}

impl CacheFile {
    /// The file for what these parts identify.
    fn of<'a>(kind: Kind, identity: impl IntoIterator<Item = &'a OsStr>) -> Result<Self, Unused> {
        let directory = cache_directory().ok_or(Unused::NoHome)?;
        Ok(Self::beneath(&directory, kind, identity))
    }

    fn beneath<'a>(
        directory: &Path,
        kind: Kind,
        identity: impl IntoIterator<Item = &'a OsStr>,
    ) -> Self {
        let digest = digest(identity.into_iter().map(OsStr::as_encoded_bytes));
        let mut first = [0; 16];
        first.copy_from_slice(&digest[..16]);
        Self {
            kind,
            directory: directory.to_owned(),
            name: format!("{}{:032x}", kind.prefix, u128::from_be_bytes(first)).into(),
        }
    }

    fn load(&self) -> Result<Vec<u8>, Unused> {
        let directory = open_directory(&self.directory)?;
        let path = || self.directory.join(&self.name);
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = openat(&directory, &*self.name, flags, Mode::empty());
        let file = File::from(file.map_err(|errno| Unused::io(&path(), errno.into()))?);
        let metadata = file
            .metadata()
            .map_err(|error| Unused::io(&path(), error))?;
        if !is_private(&metadata) {
            return Err(Unused::NotPrivate(path()));
        }
        let most = self.kind.most_bytes;
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len().min(most)).unwrap_or(0));
        let read = file.take(most + 1).read_to_end(&mut bytes);
        read.map_err(|error| Unused::io(&path(), error))?;
        if bytes.len() as u64 > most {
            return Err(Unused::TooLarge(path()));
        }
        Ok(bytes)
    }

    fn store(&self, bytes: &[u8]) -> Result<(), Unused> {
        self.place(bytes, RenameFlags::empty())
    }

    /// Stores the file if there is none.
    fn store_first(&self, bytes: &[u8]) -> Result<(), Unused> {
        self.place(bytes, RenameFlags::RENAME_NOREPLACE)
    }

    fn place(&self, bytes: &[u8], how: RenameFlags) -> Result<(), Unused> {
        if !self.directory.exists() {
            may_be_made(&self.directory)?;
            let mut builder = DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(&self.directory);
            made.map_err(|error| Unused::io(&self.directory, error))?;
        }
        let directory = open_directory(&self.directory)?;
        let stored = self.store_in(&directory, bytes, how);
        stored.map_err(|error| Unused::io(&self.directory.join(&self.name), error))
    }

    /// Replaces the file at one moment: others, in this process too, find the old one or the new one.
    fn store_in(&self, directory: &File, bytes: &[u8], how: RenameFlags) -> io::Result<()> {
        let mut temporary = self.name.clone();
        temporary.push(format!(".{:016x}", u64::from_ne_bytes(random()?)));
        let write = || {
            write_new(directory, &temporary, bytes)?;
            Ok(renameat2(
                directory,
                &*temporary,
                directory,
                &*self.name,
                how,
            )?)
        };
        let renamed: io::Result<()> = write();
        if renamed.is_err() {
            _ = unlinkat(directory, &*temporary, UnlinkatFlags::NoRemoveDir);
        }
        prune(directory.as_fd(), self.kind)?;
        renamed
    }
}

/// Writes a file that only this user can open.
fn write_new(directory: &File, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = openat(directory, name, flags | OFlag::O_CLOEXEC, mode)?;
    write_signals::as_errors(|| File::from(file).write_all(bytes))
}

/// Opens a directory if only this user can have put files into it.
fn open_directory(path: &Path) -> Result<File, Unused> {
    let io = |error| Unused::io(path, error);
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = nix::fcntl::open(path, flags, Mode::empty());
    let directory = File::from(directory.map_err(|errno| io(errno.into()))?);
    let metadata = directory.metadata().map_err(io)?;
    check_private(path, &metadata)?;
    Ok(directory)
}

/// Whether it is a file as this module makes them.
fn is_private(metadata: &fs::Metadata) -> bool {
    let others = Mode::S_IRWXG | Mode::S_IRWXO;
    let mode = Mode::from_bits_truncate(metadata.mode());
    let is_own = metadata.uid() == geteuid().as_raw() && metadata.nlink() == 1;
    metadata.is_file() && is_own && !mode.intersects(others)
}

/// Removes the oldest files of a kind, and those that are not whole and that a killed process left.
fn prune(directory: BorrowedFd, kind: Kind) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_or(i64::MAX, |now| now.as_secs().cast_signed());
    let (mut files, mut left) = (Vec::new(), Vec::new());
    for entry in Dir::openat(directory, ".", flags, Mode::empty())? {
        let name = entry?.file_name().to_owned();
        if !name.to_bytes().starts_with(kind.prefix.as_bytes()) {
            continue;
        }
        // One that is not there any more was another's that is whole now.
        let Ok(stat) = fstatat(directory, &*name, AtFlags::AT_SYMLINK_NOFOLLOW) else {
            continue;
        };
        if !name.to_bytes().contains(&b'.') {
            files.push((stat.st_mtime, stat.st_mtime_nsec, name));
        } else if stat.st_mtime < now.saturating_sub(LONGEST_STORE) {
            left.push(name);
        }
    }
    files.sort_by(|one, other| other.cmp(one));
    let old = files.into_iter().skip(kind.most_files);
    for name in old.map(|(_, _, name)| name).chain(left) {
        _ = unlinkat(directory, &*name, UnlinkatFlags::NoRemoveDir);
    }
    Ok(())
}

/// A digest that differs whenever one of the parts does.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A file in memory that a zygote reads and writes.
#[derive(Debug)]
pub(super) struct LentFile {
    pub(super) file: File,
    before: Vec<u8>,
}

impl LentFile {
    fn new(before: Vec<u8>) -> io::Result<Self> {
        let mut file = File::from(sealed::memory_file(c"sandfork-lent")?);
        write_signals::as_errors(|| file.write_all(&before))?;
        Ok(Self { file, before })
    }

    /// What a zygote has left in it, if that is new and no larger than a file of this kind.
    fn changed(&self, kind: Kind) -> io::Result<Option<Vec<u8>>> {
        let length = self.file.metadata()?.len();
        if length == 0 || length > kind.most_bytes {
            return Ok(None);
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(0)];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(Some(bytes).filter(|bytes| *bytes != self.before))
    }
}

#[cfg(test)]
mod tests;
