//! The list of fonts that matplotlib makes at its import, kept for later zygotes of the same environment and
//! policy.
//!
//! To make it, matplotlib reads every font. The text is opaque here: a zygote writes it, in which no guest
//! ever runs, and only zygotes of the same interpreter, environment and policy get it back, which load the
//! same packages. They check what it depends on. Every failure here means only that the list is made again.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process;

use nix::dir::Dir;
use nix::fcntl::{AtFlags, OFlag, openat, renameat};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::{Mode, fstatat};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};
use sha2::{Digest, Sha256};

/// The largest text, bytes: some thousand fonts.
const MAX_TEXT: u64 = 4 << 20;
/// The number of files that are kept, one for each environment and policy.
const MAX_FILES: usize = 32;

/// Where the list of one environment and policy is kept.
#[derive(Clone, Debug)]
pub struct FontCache {
    directory: PathBuf,
    name: OsString,
}

impl FontCache {
    /// The cache for what these texts identify; `None` if the user has no cache directory.
    pub fn of<'a>(identity: impl IntoIterator<Item = &'a OsStr>) -> Option<Self> {
        let set = |name| {
            env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let caches = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        Some(Self::beneath(&caches, identity))
    }

    fn beneath<'a>(caches: &Path, identity: impl IntoIterator<Item = &'a OsStr>) -> Self {
        let mut hash = Sha256::new();
        for part in identity {
            let part = part.as_encoded_bytes();
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let mut name = "fonts-1-".to_owned();
        for byte in &hash.finalize()[..16] {
            _ = write!(name, "{byte:02x}");
        }
        Self {
            directory: caches.join("sandfork"),
            name: name.into(),
        }
    }

    /// A file in memory for a zygote, with what is kept.
    pub(super) fn lend(&self) -> io::Result<Lent> {
        let mut file = File::from(memfd_create(c"sandfork-fonts", MFdFlags::MFD_CLOEXEC)?);
        let text = self.load().unwrap_or_default();
        file.write_all(&text)?;
        Ok(Lent { file, text })
    }

    /// Keeps what the zygote has left in the file, if it is new.
    pub(super) fn take_back(&self, lent: &Lent) -> io::Result<()> {
        let length = lent.file.metadata()?.len();
        if length == 0 || length > MAX_TEXT {
            return Ok(());
        }
        let mut text = vec![0; usize::try_from(length).unwrap_or(0)];
        lent.file.read_exact_at(&mut text, 0)?;
        if text == lent.text {
            return Ok(());
        }
        self.store(&text)
    }

    fn load(&self) -> io::Result<Vec<u8>> {
        let directory = self.open()?;
        let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = File::from(openat(&directory, &*self.name, flags, Mode::empty())?);
        let metadata = file.metadata()?;
        let private = metadata.is_file() && metadata.nlink() == 1 && is_private(&metadata);
        if !private || metadata.len() > MAX_TEXT {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut text = Vec::new();
        file.take(MAX_TEXT).read_to_end(&mut text)?;
        Ok(text)
    }

    fn store(&self, text: &[u8]) -> io::Result<()> {
        _ = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory);
        let directory = self.open()?;
        let mut temporary = self.name.clone();
        temporary.push(format!(".{}", process::id()));
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let created = openat(&directory, &*temporary, flags | OFlag::O_CLOEXEC, mode)?;
        let written = File::from(created).write_all(text);
        let renamed = written.and_then(|()| {
            renameat(&directory, &*temporary, &directory, &*self.name).map_err(io::Error::from)
        });
        if renamed.is_err() {
            _ = unlinkat(&directory, &*temporary, UnlinkatFlags::NoRemoveDir);
        }
        prune(directory.as_fd(), MAX_FILES)?;
        renamed
    }

    /// The directory, if only this user may enter it.
    fn open(&self) -> io::Result<File> {
        let flags = OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let directory = nix::fcntl::open(&self.directory, flags, Mode::empty())?;
        let directory = File::from(directory);
        if is_private(&directory.metadata()?) {
            Ok(directory)
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
}

/// A file in memory that a zygote reads and writes.
#[derive(Debug)]
pub(super) struct Lent {
    file: File,
    text: Vec<u8>,
}

impl AsFd for Lent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn is_private(metadata: &fs::Metadata) -> bool {
    let others = Mode::S_IRWXG | Mode::S_IRWXO;
    let mode = Mode::from_bits_truncate(metadata.mode());
    metadata.uid() == geteuid().as_raw() && !mode.intersects(others)
}

/// Removes the oldest files, also those that a killed process left.
fn prune(directory: BorrowedFd, keep: usize) -> io::Result<()> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut files = Vec::new();
    for entry in Dir::openat(directory, ".", flags, Mode::empty())? {
        let name = entry?.file_name().to_owned();
        if !name.to_bytes().starts_with(b"fonts-") {
            continue;
        }
        let stat = fstatat(directory, &*name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        files.push((stat.st_mtime, stat.st_mtime_nsec, name));
    }
    files.sort_by(|one, other| other.cmp(one));
    for (_, _, name) in files.iter().skip(keep) {
        _ = unlinkat(directory, &**name, UnlinkatFlags::NoRemoveDir);
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn cache(home: &Path) -> FontCache {
        FontCache::beneath(home, ["policy", "python"].map(OsStr::new))
    }

    /// What a zygote writes, as `_sandfork.cache` does.
    fn write(cache: &FontCache, text: &str) {
        let lent = cache.lend().unwrap();
        lent.file.set_len(0).unwrap();
        lent.file.write_all_at(text.as_bytes(), 0).unwrap();
        _ = cache.take_back(&lent);
    }

    fn read(cache: &FontCache) -> String {
        String::from_utf8(cache.lend().unwrap().text).unwrap()
    }

    #[test]
    fn what_a_zygote_wrote_comes_back_to_its_like_alone() {
        let home = tempfile::tempdir().unwrap();
        let own = cache(&home.path().join("new"));
        assert_eq!(read(&own), "");
        write(&own, "fonts");
        assert_eq!(read(&own), "fonts");
        write(&own, "more");
        assert_eq!(read(&own), "more");
        let other = FontCache::beneath(
            &home.path().join("new"),
            ["policyp", "ython"].map(OsStr::new),
        );
        assert_eq!(read(&other), "");
        let directory = fs::metadata(&own.directory).unwrap();
        let file = fs::metadata(own.directory.join(&own.name)).unwrap();
        assert_eq!(
            (directory.mode() & 0o777, file.mode() & 0o777),
            (0o700, 0o600)
        );
    }

    #[test]
    fn what_others_can_reach_is_ignored() {
        let home = tempfile::tempdir().unwrap();
        let own = cache(home.path());
        write(&own, "fonts");
        let path = own.directory.join(&own.name);
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(&path, 0o644);
        assert_eq!(read(&own), "");
        set(&path, 0o600);
        set(&own.directory, 0o755);
        assert_eq!(read(&own), "");
        write(&own, "other");
        set(&own.directory, 0o700);
        assert_eq!(read(&own), "fonts");
        fs::hard_link(&path, home.path().join("linked")).unwrap();
        assert_eq!(read(&own), "");
        fs::remove_file(&path).unwrap();
        symlink(home.path().join("linked"), &path).unwrap();
        assert_eq!(read(&own), "");
        write(&own, "again");
        assert_eq!(read(&own), "again");
        assert_eq!(
            fs::read_to_string(home.path().join("linked")).unwrap(),
            "fonts"
        );
        let elsewhere = home.path().join("elsewhere");
        fs::rename(&own.directory, &elsewhere).unwrap();
        symlink(&elsewhere, &own.directory).unwrap();
        assert_eq!(read(&own), "");
    }

    #[test]
    fn what_is_too_large_is_not_kept_and_not_read() {
        let home = tempfile::tempdir().unwrap();
        let own = cache(home.path());
        write(&own, "fonts");
        let lent = own.lend().unwrap();
        lent.file.set_len(MAX_TEXT + 1).unwrap();
        own.take_back(&lent).unwrap();
        assert_eq!(read(&own), "fonts");
        let file = File::options()
            .write(true)
            .open(own.directory.join(&own.name))
            .unwrap();
        file.set_len(MAX_TEXT + 1).unwrap();
        assert_eq!(read(&own), "");
    }

    #[test]
    fn the_oldest_go_and_other_files_stay() {
        let home = tempfile::tempdir().unwrap();
        let own = cache(home.path());
        write(&own, "fonts");
        fs::write(own.directory.join("other"), "").unwrap();
        for number in 0..40 {
            let identity = number.to_string();
            write(
                &FontCache::beneath(home.path(), [OsStr::new(&identity)]),
                "fonts",
            );
        }
        assert_eq!(fs::read_dir(&own.directory).unwrap().count(), MAX_FILES + 1);
        assert!(own.directory.join("other").exists());
    }

    #[test]
    fn without_a_place_nothing_is_kept_and_nothing_fails() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("file");
        fs::write(&file, "").unwrap();
        let own = cache(&file);
        write(&own, "fonts");
        assert_eq!(read(&own), "");
    }
}
