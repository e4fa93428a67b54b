//! Where the contents of an image lie: in memory, or on a disk for a session that is paused.
//!
//! A file on a disk has no name, so that it ends with this process, however that ends. Only bytes of a guest lie there:
//! what is done with them is this process's own list of mappings, pages and descriptors.

use std::ffi::CStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate, open};
use nix::sys::stat::Mode;
use nix::sys::statfs::{FsType, TMPFS_MAGIC, fstatfs};
use nix::sys::statvfs::fstatvfs;

use super::refusal::{Doing, SnapshotRefusal};
use super::shelf::Reserved;
use crate::host::cache_directory;
use crate::plan::bytes;
use crate::supervisor::files::reopen;
use sandfork_jail::sys::sealed;

/// The other file system in memory (linux/magic.h).
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// The bytes of this process's images on disks.
static ON_DISK: Mutex<u64> = Mutex::new(0);

/// What keeps the contents of an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Medium {
    /// Files in memory, which workers may map.
    Memory,
    /// Files on a disk, which workers read.
    Disk,
}

impl Medium {
    /// Makes the file for an image's memory, and reserves room for that and for its files, which have these lengths.
    pub fn reserve(self, memory: u64, files: u64) -> Result<(File, Reserved), SnapshotRefusal> {
        let file = self.file(c"sandfork-memory")?;
        let bytes = memory.saturating_add(files);
        let reserved = match self {
            Self::Memory => Reserved::memory(bytes)?,
            Self::Disk => Reserved::new(bytes, &ON_DISK, |others| {
                require_half(left_on(&file)?, others, bytes)?;
                let length = i64::try_from(memory).unwrap_or(i64::MAX);
                match fallocate(&file, FallocateFlags::empty(), 0, length) {
                    // A file system that cannot reserve says so when it is written to.
                    Ok(()) | Err(Errno::EOPNOTSUPP) => Ok(()),
                    Err(errno) => Err(errno).doing("reserve room on the disk"),
                }
            })?,
        };
        Ok((file, reserved))
    }

    /// Makes an empty file.
    pub fn file(self, name: &CStr) -> Result<File, SnapshotRefusal> {
        match self {
            Self::Memory => Ok(sealed::memory_file(name).doing("make an image")?.into()),
            Self::Disk => nameless(),
        }
    }

    /// Returns a file for reading only. One in memory cannot change any more.
    pub fn finish(self, file: &File) -> Result<OwnedFd, SnapshotRefusal> {
        if self == Self::Memory {
            sealed::seal(file.as_fd()).doing("seal an image")?;
        }
        reopen(file, OFlag::O_RDONLY).doing("open an image")
    }
}

/// A file without a name, on the first of the places that is on a disk.
fn nameless() -> Result<File, SnapshotRefusal> {
    let places = [Some(PathBuf::from("/var/tmp")), cache_directory()];
    let places: Vec<PathBuf> = places.into_iter().flatten().collect();
    let found = places.iter().find_map(|place| nameless_in(place));
    found.ok_or_else(|| SnapshotRefusal::NoDisk {
        places: places
            .iter()
            .map(|place| format!("`{}`", place.display()))
            .collect::<Vec<_>>()
            .join(" and "),
    })
}

fn nameless_in(place: &Path) -> Option<File> {
    // It is there already, or cannot be made, which the next call tells.
    _ = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(place);
    let flags = OFlag::O_TMPFILE | OFlag::O_EXCL | OFlag::O_RDWR | OFlag::O_CLOEXEC;
    let file = open(place, flags, Mode::S_IRUSR | Mode::S_IWUSR).ok()?;
    let kind = fstatfs(&file).ok()?.filesystem_type();
    (kind != TMPFS_MAGIC && kind != RAMFS_MAGIC).then(|| file.into())
}

/// The room that this user has on the disk of a file.
fn left_on(file: &File) -> Result<u64, SnapshotRefusal> {
    let room = fstatvfs(file).doing("measure the disk")?;
    Ok(room.blocks_available().saturating_mul(room.fragment_size()))
}

/// Leaves the disk half of what it would have without the images of this process, which have `others`.
fn require_half(left: u64, others: u64, wanted: u64) -> Result<(), SnapshotRefusal> {
    let all = left.saturating_add(others);
    if wanted.saturating_add(others) > all / 2 {
        let (wanted, left) = (bytes(wanted), bytes(left));
        return Err(SnapshotRefusal::Disk { wanted, left });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::{FileExt, MetadataExt};

    use super::*;

    #[test]
    fn a_file_on_a_disk_has_no_name_and_no_other_reader() {
        let mut file = match Medium::Disk.file(c"image") {
            // This machine has no disk.
            Err(SnapshotRefusal::NoDisk { .. }) => return,
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
    fn a_disk_without_room_refuses_an_image() {
        match Medium::Disk.reserve(1 << 60, 0) {
            Err(SnapshotRefusal::NoDisk { .. }) => {}
            other => {
                let refused = other.expect_err("no disk has that");
                assert!(
                    refused.to_string().contains("more than half of the disk"),
                    "{refused}"
                );
            }
        }
    }

    #[test]
    fn the_images_together_leave_the_disk_half() {
        assert_eq!(require_half(100, 0, 50), Ok(()));
        require_half(100, 0, 51).expect_err("it is more");
        // 40 of 140 are taken.
        assert_eq!(require_half(100, 40, 30), Ok(()));
        let refused = require_half(100, 40, 31).expect_err("it is more");
        let sentence = "the sessions that are paused would take more than half of the disk: it takes 31 bytes, and 100 bytes are left";
        assert_eq!(refused.to_string(), sentence);
    }

    #[test]
    fn memory_is_no_disk() {
        let file = sealed::memory_file(c"x").expect("there is memory");
        let kind = fstatfs(&file).expect("it has one").filesystem_type();
        assert_eq!(kind, TMPFS_MAGIC);
        let shared = File::open("/dev/shm").and_then(|it| Ok(fstatfs(it)?));
        if shared.is_ok_and(|it| it.filesystem_type() == TMPFS_MAGIC) {
            assert!(nameless_in(Path::new("/dev/shm")).is_none());
        }
    }
}
