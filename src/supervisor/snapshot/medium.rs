//! Stores the contents of an image: in memory, or on disk for a session that is paused.
//!
//! A file on disk is unnamed, so that it disappears with this process, however the process ends. It holds only the
//! guest's bytes: the mappings, pages and descriptors by which they are restored stay in this process.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate, open};
use nix::sys::stat::Mode;
use nix::sys::statfs::{FsType, TMPFS_MAGIC, fstatfs};
use nix::sys::statvfs::fstatvfs;

use super::refusal::{Doing, SnapshotRefusal};
use super::shelf::Reserved;
use crate::host::cache_directory;
use crate::supervisor::files::reopen;
use sandfork_jail::sys::sealed;

/// The file system type of ramfs (linux/magic.h).
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// The bytes of this process's images on disk.
static ON_DISK: Mutex<u64> = Mutex::new(0);

/// The number of live [`DiskShare`]s, one per sandbox.
static SHARES: AtomicUsize = AtomicUsize::new(0);

/// The bytes that one sandbox's images take on disk. Other sandboxes may belong to other tenants, so that each leaves
/// them room.
#[derive(Clone, Debug, Default)]
pub struct DiskShare(Arc<SandboxBytes>);

#[derive(Debug)]
struct SandboxBytes {
    /// Changes only while the total is locked.
    bytes: AtomicU64,
}

/// Where the contents of an image are stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Medium {
    /// Memory files, which workers may map.
    Memory,
    /// Files on disk, which workers read.
    Disk,
}

impl Medium {
    /// Creates the file for an image's memory, and reserves `memory` bytes for it and `files` bytes for the contents of
    /// the directories.
    pub fn reserve(
        self,
        memory: u64,
        files: u64,
        share: &DiskShare,
    ) -> Result<(File, Reserved), SnapshotRefusal> {
        let file = self.file(c"sandfork-memory")?;
        let bytes = memory.saturating_add(files);
        let reserved = match self {
            Self::Memory => Reserved::memory(bytes)?,
            Self::Disk => Reserved::new(bytes, &ON_DISK, Some(share), |taken| {
                let all = left_on(&file)?.saturating_add(taken);
                require_share(all, taken, share.others_have(taken), bytes)?;
                let length = i64::try_from(memory).unwrap_or(i64::MAX);
                match fallocate(&file, FallocateFlags::empty(), 0, length) {
                    // A file system without fallocate(2) reports a full disk on write instead.
                    Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
                    Err(errno) => Err(errno).doing("reserve room on the disk"),
                }
            })?,
        };
        Ok((file, reserved))
    }

    /// Creates an empty file.
    pub fn file(self, name: &CStr) -> Result<File, SnapshotRefusal> {
        match self {
            Self::Memory => Ok(sealed::memory_file(name).doing("make an image")?.into()),
            Self::Disk => unnamed_file(),
        }
    }

    /// Returns a read-only descriptor of `file`. A memory file is sealed first.
    pub fn finish(self, file: &File) -> Result<OwnedFd, SnapshotRefusal> {
        if self == Self::Memory {
            sealed::seal(file.as_fd()).doing("seal an image")?;
        }
        reopen(file, OFlag::O_RDONLY).doing("open an image")
    }
}

/// Creates an unnamed file in the first candidate directory that is on disk.
fn unnamed_file() -> Result<File, SnapshotRefusal> {
    let places = [Some(PathBuf::from("/var/tmp")), cache_directory()];
    let places: Vec<PathBuf> = places.into_iter().flatten().collect();
    let found = places.iter().find_map(|place| unnamed_file_in(place));
    found.ok_or_else(|| {
        let places = places.iter().map(|place| format!("`{}`", place.display()));
        SnapshotRefusal::NoDisk(places.collect::<Vec<_>>().join(" or "))
    })
}

fn unnamed_file_in(place: &Path) -> Option<File> {
    // Errors are ignored: the directory exists already, or opening a file in it fails below.
    _ = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(place);
    let flags = OFlag::O_TMPFILE | OFlag::O_EXCL | OFlag::O_RDWR | OFlag::O_CLOEXEC;
    let file = open(place, flags, Mode::S_IRUSR | Mode::S_IWUSR).ok()?;
    let kind = fstatfs(&file).ok()?.filesystem_type();
    (kind != TMPFS_MAGIC && kind != RAMFS_MAGIC).then(|| file.into())
}

/// Returns the bytes that this user may still write to the disk of `file`.
fn left_on(file: &File) -> Result<u64, SnapshotRefusal> {
    let room = fstatvfs(file).doing("measure the disk")?;
    Ok(room.blocks_available().saturating_mul(room.fragment_size()))
}

/// Requires that all images of this process leave half of the disk space free. `all` is the free space without these
/// images, and `taken` their bytes. If there are several sandboxes, `by_others` is the bytes of the others' images, and
/// each sandbox may use half of the process's allowance.
fn require_share(
    all: u64,
    taken: u64,
    by_others: Option<u64>,
    wanted: u64,
) -> Result<(), SnapshotRefusal> {
    let refused = |whose, taken, most| {
        (wanted.saturating_add(taken) > most).then_some(SnapshotRefusal::Disk {
            whose,
            wanted,
            taken,
            most,
        })
    };
    let of_process = refused("process", taken, all / 2);
    let of_sandbox =
        by_others.and_then(|others| refused("sandbox", taken.saturating_sub(others), all / 4));
    of_sandbox.or(of_process).map_or(Ok(()), Err)
}

impl DiskShare {
    /// Returns the bytes that other sandboxes' images take, if there are other sandboxes.
    fn others_have(&self, taken: u64) -> Option<u64> {
        let own = self.0.bytes.load(Ordering::Relaxed);
        (SHARES.load(Ordering::Relaxed) > 1).then_some(taken.saturating_sub(own))
    }

    /// Adds `bytes`. The caller holds the lock on the total.
    pub(super) fn add(&self, bytes: u64) {
        self.0.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Subtracts `bytes`. The caller holds the lock on the total.
    pub(super) fn remove(&self, bytes: u64) {
        self.0.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Default for SandboxBytes {
    fn default() -> Self {
        SHARES.fetch_add(1, Ordering::Relaxed);
        Self {
            bytes: AtomicU64::new(0),
        }
    }
}

impl Drop for SandboxBytes {
    fn drop(&mut self) {
        SHARES.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn disk_file_is_unnamed_and_private() {
        let mut file = match Medium::Disk.file(c"image") {
            // No directory of this machine is on disk.
            Err(SnapshotRefusal::NoDisk(_)) => return,
            other => other.expect("there is a disk"),
        };
        file.write_all(b"bytes").expect("there is room");
        let reader = Medium::Disk.finish(&file).expect("it can be read");
        drop(file);
        let reader = File::from(reader);
        let stat = reader.metadata().expect("it is there");
        assert_eq!((stat.nlink(), stat.mode() & 0o7777), (0, 0o600));
        let mut read = [0; 5];
        reader.read_exact_at(&mut read, 0).expect("it has them");
        assert_eq!(&read, b"bytes");
        reader
            .write_at(b"others", 0)
            .expect_err("it is for reading");
    }

    #[test]
    fn image_larger_than_the_disk_is_refused() {
        match Medium::Disk.reserve(1 << 60, 0, &DiskShare::default()) {
            Err(SnapshotRefusal::NoDisk(_)) => {}
            other => {
                let refused = other.expect_err("no disk has that");
                assert!(matches!(refused, SnapshotRefusal::Disk { .. }), "{refused}");
            }
        }
    }

    #[test]
    fn images_together_leave_half_of_the_disk_free() {
        let require = |taken, wanted| require_share(140, taken, None, wanted);
        assert_eq!(require(0, 70), Ok(()));
        require(0, 71).expect_err("it is more");
        assert_eq!(require(40, 30), Ok(()));
        let refused = require(40, 31).expect_err("it is more");
        let sentence = "it takes 31 bytes, and the paused sessions of this process have 40 bytes of the 70 bytes that they may \
                        have on the disk; end some of them, or make room on the disk";
        assert_eq!(refused.to_string(), sentence);
    }

    #[test]
    fn sandbox_leaves_half_of_the_allowance_to_others() {
        let require = |own, others, wanted| require_share(160, own + others, Some(others), wanted);
        assert_eq!(require(0, 0, 40), Ok(()));
        let refused = require(10, 0, 31).expect_err("it is more");
        let sentence = "it takes 31 bytes, and the paused sessions of this sandbox have 10 bytes of the 40 bytes that they may \
                        have on the disk; end some of them, or make room on the disk";
        assert_eq!(refused.to_string(), sentence);
        assert_eq!(require(0, 40, 40), Ok(()));
        // The other sandboxes have used the whole allowance.
        require(0, 80, 1).expect_err("nothing is left");
    }

    #[test]
    fn bytes_of_others_exclude_own_bytes() {
        let (one, other) = (DiskShare::default(), DiskShare::default());
        one.add(30);
        assert_eq!(one.others_have(50), Some(20));
        assert_eq!(other.others_have(50), Some(50));
        one.remove(30);
        assert_eq!(one.others_have(50), Some(50));
    }

    #[test]
    fn tmpfs_is_not_a_disk() {
        let file = sealed::memory_file(c"x").expect("there is memory");
        let kind = fstatfs(&file).expect("it has one").filesystem_type();
        assert_eq!(kind, TMPFS_MAGIC);
        let shared = File::open("/dev/shm").and_then(|it| Ok(fstatfs(it)?));
        if shared.is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC) {
            assert!(unnamed_file_in(Path::new("/dev/shm")).is_none());
        }
    }
}
