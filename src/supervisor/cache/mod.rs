//! Keeps files for later processes of this user, in the user's cache directory.
//!
//! The cache saves time and affects no decision. A file is read only if no other user can have written it: the file and
//! its directory belong to this user, only this user may write to them, and no other user can replace the directory.
//! A failure here only means that work is repeated.

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

/// The properties that files of one kind share.
#[derive(Clone, Copy, Debug)]
struct Kind {
    /// The prefix of their names, with the version of the format.
    prefix: &'static str,
    /// The maximum size of a file in bytes.
    most_bytes: u64,
    /// The maximum number of files.
    most_files: usize,
}

/// The time that a process may take to write a file, in seconds. Older incomplete files are removed.
const LONGEST_STORE: i64 = 3600;

/// The number of bytes that are written to test whether the disk has room.
const TRIAL: usize = 64 << 10;

/// A file in the user's cache directory, which may not exist yet.
#[derive(Clone, Debug)]
struct CacheFile {
    kind: Kind,
    directory: PathBuf,
    name: OsString,
}

/// Returns the directory of the cache, or why nothing can be cached.
pub fn kept_in() -> Result<PathBuf, Unused> {
    let directory = cache_directory().ok_or(Unused::NoHome)?;
    match open_directory(&directory) {
        // The directory does not exist, or this user cannot search its parent.
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

/// Writes a file and removes it. Creating an empty file is not enough: a full disk may still have room for a name.
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
    /// Returns the file that these parts identify.
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

    /// Stores the file unless it exists.
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

    /// Replaces the file atomically: other readers, also in this process, see the old contents or the new ones.
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

/// Writes a new file that only this user can open.
fn write_new(directory: &File, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
    let mode = Mode::S_IRUSR | Mode::S_IWUSR;
    let file = openat(directory, name, flags | OFlag::O_CLOEXEC, mode)?;
    write_signals::as_errors(|| File::from(file).write_all(bytes))
}

/// Opens a directory if only this user can create files in it.
fn open_directory(path: &Path) -> Result<File, Unused> {
    let io = |error| Unused::io(path, error);
    let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let directory = nix::fcntl::open(path, flags, Mode::empty());
    let directory = File::from(directory.map_err(|errno| io(errno.into()))?);
    let metadata = directory.metadata().map_err(io)?;
    check_private(path, &metadata)?;
    Ok(directory)
}

/// Whether the file has the type, owner, mode and link count of files that this module creates.
fn is_private(metadata: &fs::Metadata) -> bool {
    let others = Mode::S_IRWXG | Mode::S_IRWXO;
    let mode = Mode::from_bits_truncate(metadata.mode());
    let is_own = metadata.uid() == geteuid().as_raw() && metadata.nlink() == 1;
    metadata.is_file() && is_own && !mode.intersects(others)
}

/// Removes the oldest files of a kind, and incomplete files that a killed process left.
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
        // Another process has renamed its complete file meanwhile.
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

/// Returns a digest that differs whenever one of the parts does.
fn digest<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// A memory file that a zygote reads and writes.
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

    /// Returns what the zygote wrote to the file, if it is new and not larger than a file of this kind may be.
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
