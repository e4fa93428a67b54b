//! Measures the files of a session, to enforce a quota on a file system without quotas.

use std::collections::HashSet;
use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag};
use nix::libc::{S_IFDIR, S_IFMT};
use nix::sys::stat::{FileStat, fstat, fstatat};
use nix::unistd::Pid;

use super::removal::make_usable;
use crate::plan::FileQuota;
use crate::supervisor::files::open_beneath;

/// The space that files take.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Size {
    /// The bytes of the allocated blocks.
    pub bytes: u64,
    /// The number of files, directories and links.
    pub inodes: u64,
}

/// The unit of `st_blocks` (stat(2)) in bytes.
const BLOCK: u64 = 512;

/// A running count of a session's files, which stops at the quota.
pub struct Count {
    quota: FileQuota,
    device: u64,
    /// The count so far.
    pub size: Size,
    /// Inodes that may be found more than once, and count once: those with several names, and those of unlinked files.
    seen: HashSet<u64>,
}

impl Count {
    /// Counts the tree at `root`.
    pub fn tree(root: BorrowedFd, quota: FileQuota) -> Self {
        let mut count = Self {
            quota,
            device: fstat(root).map_or(0, |stat| stat.st_dev),
            size: Size::default(),
            seen: HashSet::new(),
        };
        if tree(root, &mut count).is_err() {
            // The guest can make an entry uninspectable: a name too long to open, or a directory that it closes again
            // and again. Such a tree counts as over the limit.
            count.size.inodes = u64::MAX;
        }
        count
    }

    /// Adds unlinked files that the process holds open or mapped. A file that cannot be inspected counts as one of the
    /// largest allowed size.
    ///
    /// Blocks while the process changes its own memory map.
    pub fn add_nameless(&mut self, pid: Pid) {
        let open = fs::read_dir(format!("/proc/{pid}/fd"));
        for entry in open.into_iter().flatten().flatten() {
            let Ok(held) = fs::metadata(entry.path()) else {
                continue;
            };
            if held.dev() == self.device && held.nlink() == 0 && self.seen.insert(held.ino()) {
                self.add(held.blocks());
            }
        }
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        for line in maps.lines().filter(|line| line.ends_with(" (deleted)")) {
            let Some((range, inode)) = mapping_on(line, self.device) else {
                continue;
            };
            if self.seen.insert(inode) {
                // Only a privileged process may follow these links (proc(5)).
                let held = fs::metadata(format!("/proc/{pid}/map_files/{range}"));
                self.add(held.map_or(self.quota.largest / BLOCK, |held| held.blocks()));
            }
        }
    }

    fn add(&mut self, blocks: u64) {
        self.size.bytes = self.size.bytes.saturating_add(blocks * BLOCK);
        self.size.inodes = self.size.inodes.saturating_add(1);
    }
}

fn tree(root: BorrowedFd, count: &mut Count) -> Result<(), Errno> {
    let mut unseen = vec![CString::from(c".")];
    while let Some(path) = unseen.pop() {
        let dir = match open_dir(root, &path) {
            // The entry was removed or replaced meanwhile.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => continue,
            other => other?,
        };
        let mut listing = Dir::from_fd(dir)?;
        let names: Vec<CString> = listing
            .iter()
            .filter_map(|entry| Some(entry.ok()?.file_name().to_owned()))
            .filter(|name| !matches!(name.to_bytes(), b"." | b".."))
            .collect();
        for name in names {
            let Ok(stat) = fstatat(&listing, name.as_c_str(), AtFlags::AT_SYMLINK_NOFOLLOW) else {
                continue;
            };
            if stat.st_nlink < 2 || is_dir(&stat) || count.seen.insert(stat.st_ino) {
                count.add(u64::try_from(stat.st_blocks).unwrap_or(0));
            }
            if count.size.inodes > count.quota.inodes {
                return Ok(());
            }
            if is_dir(&stat) {
                let below = [path.to_bytes(), b"/", name.to_bytes()].concat();
                unseen.push(CString::new(below).map_err(|_| Errno::EINVAL)?);
            }
        }
    }
    Ok(())
}

fn is_dir(stat: &FileStat) -> bool {
    stat.st_mode & S_IFMT == S_IFDIR
}

/// Opens a directory beneath `root` without following links, even if its owner has removed its own access.
fn open_dir(root: BorrowedFd, path: &CString) -> Result<OwnedFd, Errno> {
    let open = |flags: OFlag| open_beneath(root, path, flags | OFlag::O_DIRECTORY);
    match open(OFlag::O_RDONLY) {
        Err(Errno::EACCES) => {
            make_usable(open(OFlag::O_PATH)?.as_fd())?;
            open(OFlag::O_RDONLY)
        }
        other => other,
    }
}

/// Parses a line of `/proc/PID/maps` into the address range and the inode, if the file is on this device.
fn mapping_on(line: &str, device: u64) -> Option<(&str, u64)> {
    let mut fields = line.split_ascii_whitespace();
    let range = fields.next()?;
    let (major, minor) = fields.nth(2)?.split_once(':')?;
    let number = |text| u64::from_str_radix(text, 16).ok();
    let inode = fields.next()?.parse().ok()?;
    let on = nix::sys::stat::makedev(number(major)?, number(minor)?);
    (on == device).then_some((range, inode))
}
