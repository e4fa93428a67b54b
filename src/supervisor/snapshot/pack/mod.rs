//! Serializes the files of a worker into a stream.
//!
//! Names, link targets and contents are the guest's. Every path is therefore resolved beneath the descriptor of one of
//! the worker's own directories.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::sys::statvfs::fstatvfs;
use nix::unistd::{Whence, lseek};

use crate::plan::harmless;
use crate::supervisor::as_guest::as_guest;
use crate::supervisor::descriptors::{CHUNK, read_in_pieces};
use crate::supervisor::files::{LentFiles, open_beneath, reopen};
use crate::supervisor::snapshot::refusal::{Doing, SnapshotRefusal};
use crate::supervisor::snapshot::shown_trees;
use sandfork_jail::archive::{Entry, Kind, piece};
use sandfork_jail::program::{HostIds, WorkerJail};
use sandfork_jail::sys;

/// The maximum number of entries of a tree. Quotas are far below it.
const MAX_ENTRIES: usize = 1 << 20;

const LISTED: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);

/// How a caller may still change a worker's files.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a> {
    /// Files that the caller may have open for writing, by inode.
    pub files: &'a LentFiles,
    /// The user that owns the files, if it is not this process's user.
    pub owner: Option<HostIds>,
}

/// The result of [`pack`].
#[derive(Debug)]
pub struct Packed {
    /// The length of the stream in bytes.
    pub bytes: u64,
    /// The path of a file that its owner may not read, if there is one.
    pub unreadable: Option<String>,
}

/// Packs the directories of a worker with this jail into `file`.
///
/// `lent` is set if another worker will continue in place of this one. Files that are still open for writing are then
/// refused, because later writes to them would be lost, and so are files that their owner may not read.
pub fn pack(
    directories: &[OwnedFd],
    jail: &WorkerJail,
    file: &File,
    lent: Option<Lent>,
) -> Result<Packed, SnapshotRefusal> {
    let mut unreadable = None;
    let mut writer = BufWriter::with_capacity(CHUNK, file);
    for (directory, path) in directories.iter().zip(jail.writable_directories()) {
        let mut tree = Tree {
            root: path,
            directory,
            lent,
            nodes: BTreeMap::new(),
            names: Vec::new(),
            inodes: used(directory)?.inodes,
            mounts: BTreeSet::new(),
            unreadable: None,
            nearest: None,
        };
        tree.find()?;
        tree.require_unmoved(shown_trees(jail))?;
        // Measure again: a file that the caller has open may have grown since `find`.
        tree.write(&mut writer, used(directory)?.bytes)?;
        unreadable = unreadable.or(tree.unreadable);
    }
    writer.flush().doing("write an image")?;
    drop(writer);
    Ok(Packed {
        bytes: file.metadata().doing("measure an image")?.len(),
        unreadable,
    })
}

/// What the file system of a tree holds. These numbers bound the copy: a guest that keeps running could change its
/// files while they are copied, so that the copy would hold more bytes and names than the quotas allow at any one time.
struct Used {
    bytes: u64,
    inodes: u64,
}

fn used(directory: &OwnedFd) -> Result<Used, SnapshotRefusal> {
    let stat = fstatvfs(directory).doing("measure its files")?;
    Ok(Used {
        bytes: (stat.blocks() - stat.blocks_free()) * stat.fragment_size(),
        inodes: stat.files() - stat.files_free(),
    })
}

/// A file, with the first path by which it was found.
struct Node {
    kind: Kind,
    stat: FileStat,
    path: CString,
}

/// The entries beneath one of the worker's directories.
struct Tree<'a> {
    root: &'a Path,
    directory: &'a OwnedFd,
    lent: Option<Lent<'a>>,
    /// Files by inode number.
    nodes: BTreeMap<u64, Node>,
    /// Paths relative to `root`, with inode numbers. A directory precedes its entries.
    names: Vec<(CString, u64)>,
    /// The inodes in use when the walk began. Every name takes one, even a further hard link of a file.
    inodes: u64,
    /// Mount points in the tree.
    mounts: BTreeSet<PathBuf>,
    /// The path of the first file that its owner may not read.
    unreadable: Option<String>,
    /// The directory that was listed last, and its path.
    nearest: Option<(CString, OwnedFd)>,
}

impl Tree<'_> {
    /// Finds all entries, depth first: a directory is then opened relative to one near it.
    fn find(&mut self) -> Result<(), SnapshotRefusal> {
        let root = fstat(self.directory).doing("describe its directory")?;
        self.check_mode(Kind::Directory, &root, c"")?;
        let mut unlisted = vec![CString::default()];
        while let Some(path) = unlisted.pop() {
            let known = self.names.len();
            self.list(path)?;
            let kind = |inode| self.nodes.get(inode).map(|node| node.kind);
            let found = self.names[known..].iter();
            let directories = found.filter(|(_, inode)| kind(inode) == Some(Kind::Directory));
            unlisted.extend(directories.map(|(path, _)| path.clone()));
        }
        Ok(())
    }

    /// Adds the entries of a directory. An empty path is the root.
    fn list(&mut self, prefix: CString) -> Result<(), SnapshotRefusal> {
        let directory = self.opened(&prefix, self.open_directory(&prefix))?;
        // Read through /proc, because nix's `Dir::from_fd` leaks the descriptor if it fails.
        let listed = fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        for entry in listed.doing("list its directory")? {
            let name = entry.doing("list its directory")?.file_name();
            let mut path = prefix.to_bytes().to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name.as_encoded_bytes());
            // Neither name nor path contains a NUL byte.
            let c_string = |bytes: Vec<u8>| CString::new(bytes).unwrap_or_default();
            let (name, path) = (c_string(name.into_encoded_bytes()), c_string(path));
            if self.names.len() == MAX_ENTRIES {
                return Err(SnapshotRefusal::Fragmented(MAX_ENTRIES));
            }
            if self.names.len() as u64 >= self.inodes {
                return Err(SnapshotRefusal::Changed);
            }
            self.add(&directory, &name, path)?;
        }
        self.nearest = Some((prefix, directory));
        Ok(())
    }

    /// Opens a directory, relative to the last one if that is above it: resolving every path from the root would take a
    /// number of steps that grows with the square of the depth.
    fn open_directory(&self, path: &CStr) -> Result<OwnedFd, Errno> {
        let bytes = path.to_bytes_with_nul();
        if bytes == [0] {
            return open_beneath(self.directory, c".", LISTED);
        }
        let below = self.nearest.as_ref().and_then(|(nearest, directory)| {
            let rest = bytes.strip_prefix(nearest.to_bytes())?.strip_prefix(b"/")?;
            Some((directory, CStr::from_bytes_with_nul(rest).ok()?))
        });
        match below {
            Some((directory, rest)) => open_beneath(directory, rest, LISTED),
            None => open_beneath(self.directory, path, LISTED),
        }
    }

    /// Adds an entry. `name` is resolved relative to its own directory, because a guest can nest directories so deeply
    /// that resolving every path from the root would take the host very long.
    fn add(
        &mut self,
        directory: &OwnedFd,
        name: &CStr,
        path: CString,
    ) -> Result<(), SnapshotRefusal> {
        let handle = match open_beneath(directory, name, OFlag::O_PATH) {
            // A mount point, which every worker has.
            Err(Errno::EXDEV) => {
                let path = OsStr::from_bytes(path.to_bytes());
                self.mounts.insert(self.root.join(path));
                return Ok(());
            }
            other => self.opened(&path, other)?,
        };
        let stat = fstat(&handle).doing("describe its file")?;
        let refuse = |what: &str| {
            let path = self.path(&path);
            let why = format!("`{}` is {what}; remove it first", harmless(&path));
            Err(SnapshotRefusal::Other(why))
        };
        let kind = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR => Kind::Directory,
            SFlag::S_IFLNK => Kind::Symlink,
            SFlag::S_IFIFO => Kind::Fifo,
            SFlag::S_IFREG => Kind::File,
            SFlag::S_IFSOCK => return refuse("a socket"),
            _ => return refuse("a device"),
        };
        self.check_mode(kind, &stat, &path)?;
        self.names.push((path.clone(), stat.st_ino));
        let node = Node { kind, stat, path };
        self.nodes.entry(stat.st_ino).or_insert(node);
        Ok(())
    }

    /// Records or refuses a file that its owner may not read: a restored worker could not map it again, or open what is
    /// in it, and a paused session would be lost.
    fn check_mode(
        &mut self,
        kind: Kind,
        stat: &FileStat,
        path: &CStr,
    ) -> Result<(), SnapshotRefusal> {
        let owner_may = match kind {
            Kind::Directory => 0o500,
            Kind::File => 0o400,
            _ => 0,
        };
        if stat.st_mode & owner_may != owner_may {
            let path = self.path(path);
            if self.lent.is_some() {
                return Err(SnapshotRefusal::Unreadable(path));
            }
            self.unreadable.get_or_insert(path);
        }
        Ok(())
    }

    fn path(&self, path: &CStr) -> String {
        let path = OsStr::from_bytes(path.to_bytes());
        let path = self.root.components().chain(Path::new(path).components());
        path.collect::<PathBuf>().to_string_lossy().into_owned()
    }

    /// Requires that each path of `shown` is still a mount point: renaming a parent directory moves the mount with it.
    fn require_unmoved<'s>(
        &self,
        shown: impl Iterator<Item = &'s Path>,
    ) -> Result<(), SnapshotRefusal> {
        let mut here = shown.filter(|path| path.starts_with(self.root));
        match here.find(|path| !self.mounts.contains(*path)) {
            Some(moved) => Err(SnapshotRefusal::Other(format!(
                "`{}`, which the policy shows, was moved; move it back first",
                harmless(&moved.display().to_string())
            ))),
            None => Ok(()),
        }
    }

    fn require_unwritten(&self, node: &Node, file: &OwnedFd) -> Result<(), SnapshotRefusal> {
        let lent = self.lent;
        let Some(lent) = lent.filter(|lent| lent.files.contains_key(&node.stat.st_ino)) else {
            return Ok(());
        };
        let is_written = as_guest(lent.owner, || sys::lease::is_written(file.as_fd()));
        if is_written.doing("see whether its file is written to")? {
            return Err(SnapshotRefusal::Other(format!(
                "`{}`, which the session's caller has written to, is open for writing, by the caller or the guest; \
                 close it first",
                harmless(&self.path(&node.path))
            )));
        }
        Ok(())
    }

    /// Adds the path to a permission error. A supervisor without root is subject to the modes of the files.
    fn opened(
        &self,
        path: &CStr,
        opened: Result<OwnedFd, Errno>,
    ) -> Result<OwnedFd, SnapshotRefusal> {
        match opened {
            Err(Errno::EACCES) => Err(SnapshotRefusal::Unreadable(self.path(path))),
            other => other.doing("open its file"),
        }
    }

    fn handle(&self, node: &Node) -> Result<OwnedFd, SnapshotRefusal> {
        let handle = open_beneath(self.directory, &node.path, OFlag::O_PATH);
        self.opened(&node.path, handle)
    }

    /// Writes the files, then their names. `left` bounds the file bytes outside of holes.
    fn write(&self, writer: &mut impl Write, mut left: u64) -> Result<(), SnapshotRefusal> {
        for node in self.nodes.values() {
            let size = u64::try_from(node.stat.st_size).unwrap_or(0);
            match node.kind {
                Kind::Symlink => {
                    let target = readlinkat(&self.handle(node)?, c"").doing("read its link")?;
                    let target = target.as_encoded_bytes();
                    entry(writer, node.kind, c"", &node.stat, target.len() as u64)?;
                    writer.write_all(target).doing("write an image")?;
                }
                Kind::File => {
                    let file = reopen(&self.handle(node)?, OFlag::O_RDONLY);
                    let file = self.opened(&node.path, file)?;
                    self.require_unwritten(node, &file)?;
                    entry(writer, node.kind, c"", &node.stat, size)?;
                    pieces(writer, &file.into(), size, &mut left)?;
                }
                _ => entry(writer, node.kind, c"", &node.stat, 0)?,
            }
        }
        for (path, inode) in &self.names {
            if let Some(node) = self.nodes.get(inode) {
                entry(writer, Kind::Name, path, &node.stat, 0)?;
            }
        }
        let root = fstat(self.directory).doing("describe its directory")?;
        entry(writer, Kind::Root, c"", &root, 0)
    }
}

/// Writes the data segments of a sparse file, up to `left` bytes.
fn pieces(
    writer: &mut impl Write,
    file: &File,
    size: u64,
    left: &mut u64,
) -> Result<(), SnapshotRefusal> {
    let seek = |from: u64, whence| {
        let from = i64::try_from(from).unwrap_or(i64::MAX);
        match lseek(file.as_fd(), from, whence) {
            Err(Errno::ENXIO) => Ok(None),
            other => Ok(u64::try_from(other.doing("copy its file")?).ok()),
        }
    };
    let mut at = 0;
    while let Some(start) = seek(at, Whence::SeekData)?.filter(|start| *start < size) {
        let end = seek(start, Whence::SeekHole)?.unwrap_or(size).min(size);
        let length = end.saturating_sub(start);
        *left = left.checked_sub(length).ok_or(SnapshotRefusal::Changed)?;
        copy(writer, file, start..start + length).doing("copy its file")?;
        at = end;
    }
    writer.write_all(&piece(0, 0)).doing("write an image")
}

fn copy(writer: &mut impl Write, file: &File, range: Range<u64>) -> io::Result<()> {
    writer.write_all(&piece(range.start, range.end - range.start))?;
    read_in_pieces(file, range, |bytes| writer.write_all(bytes))
}

fn entry(
    writer: &mut impl Write,
    kind: Kind,
    name: &CStr,
    stat: &FileStat,
    size: u64,
) -> Result<(), SnapshotRefusal> {
    let name = name.to_bytes();
    let entry = Entry {
        kind,
        name: name.len(),
        mode: stat.st_mode & 0o7777,
        modified: (
            stat.st_mtime,
            u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        ),
        size,
        inode: stat.st_ino,
    };
    let written = writer.write_all(&entry.encode());
    written
        .and_then(|()| writer.write_all(name))
        .doing("write an image")
}

#[cfg(test)]
mod tests;
