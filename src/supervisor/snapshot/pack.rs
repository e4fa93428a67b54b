//! Reads the files of a worker into a stream. The names, links and contents are the guest's: paths lead through
//! descriptors beneath the worker's directories only.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, CString};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, readlinkat};
use nix::sys::stat::{FileStat, SFlag, fstat};
use nix::unistd::{Whence, lseek};

use super::refusal::{Doing, SnapshotRefusal};
use crate::supervisor::as_guest::as_guest;
use crate::supervisor::descriptors::{CHUNK, with_buffer};
use crate::supervisor::files::{open_beneath, reopen};
use sandfork_jail::archive::{Entry, Kind, piece};
use sandfork_jail::program::HostIds;
use sandfork_jail::sys;

/// The most entries of a tree. Quotas are far below.
const MOST_ENTRIES: usize = 1 << 20;

const LISTED: OFlag = OFlag::O_RDONLY.union(OFlag::O_DIRECTORY);

/// What a caller may still do to a worker's files.
#[derive(Clone, Copy, Debug)]
pub struct Lent<'a> {
    /// The numbers of the files that it got for writing.
    pub inodes: &'a BTreeSet<u64>,
    /// The user whose files they are, if it is another one.
    pub owner: Option<HostIds>,
}

/// Reads these directories, which have these paths, into a file. Returns the length of the stream. Refuses files of
/// `lent` that are still open for writing, if there is any: what was written to them later would be lost.
pub fn pack(
    directories: &[OwnedFd],
    paths: &[&Path],
    file: &File,
    lent: Option<Lent>,
) -> Result<u64, SnapshotRefusal> {
    let mut writer = BufWriter::with_capacity(CHUNK, file);
    for (directory, path) in directories.iter().zip(paths) {
        let mut tree = Tree {
            root: path,
            directory,
            lent,
            nodes: BTreeMap::new(),
            names: Vec::new(),
        };
        tree.find()?;
        tree.write(&mut writer)?;
    }
    writer.flush().doing("write an image")?;
    drop(writer);
    Ok(file.metadata().doing("measure an image")?.len())
}

/// A file, and the first of its names.
struct Node {
    kind: Kind,
    stat: FileStat,
    path: CString,
}

/// What is beneath a directory.
struct Tree<'a> {
    root: &'a Path,
    directory: &'a OwnedFd,
    lent: Option<Lent<'a>>,
    /// Files by the number of their inode.
    nodes: BTreeMap<u64, Node>,
    /// Paths in the tree, with the number of their inode. A directory comes before what is in it.
    names: Vec<(CString, u64)>,
}

impl Tree<'_> {
    fn find(&mut self) -> Result<(), SnapshotRefusal> {
        let mut listed = 0;
        self.list(c".", c"")?;
        while let Some((path, inode)) = self.names.get(listed) {
            let is_directory = self.nodes.get(inode).map(|node| node.kind) == Some(Kind::Directory);
            let path = path.clone();
            if is_directory {
                self.list(&path, &path)?;
            }
            listed += 1;
        }
        Ok(())
    }

    /// Finds the entries of a directory, whose names begin with `prefix`.
    fn list(&mut self, path: &CStr, prefix: &CStr) -> Result<(), SnapshotRefusal> {
        let directory = self.opened(path, open_beneath(self.directory, path, LISTED))?;
        // By way of its descriptor, which `Dir::from_fd` of nix would leak if it fails.
        let listed = fs::read_dir(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        for entry in listed.doing("list its directory")? {
            let name = entry.doing("list its directory")?.file_name();
            let mut path = prefix.to_bytes().to_vec();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend(name.as_encoded_bytes());
            // Neither part has a zero.
            let path = CString::new(path).unwrap_or_default();
            if self.names.len() == MOST_ENTRIES {
                return Err(SnapshotRefusal::Fragmented { most: MOST_ENTRIES });
            }
            self.add(path)?;
        }
        Ok(())
    }

    fn add(&mut self, path: CString) -> Result<(), SnapshotRefusal> {
        let handle = match open_beneath(self.directory, &path, OFlag::O_PATH) {
            // Something is mounted there, which every worker has.
            Err(Errno::EXDEV) => return Ok(()),
            other => self.opened(&path, other)?,
        };
        let stat = fstat(&handle).doing("describe its file")?;
        let refuse = |what| {
            let path = self.path(&path);
            Err(SnapshotRefusal::File { path, what })
        };
        let kind = match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
            SFlag::S_IFDIR => Kind::Directory,
            SFlag::S_IFLNK => Kind::Symlink,
            SFlag::S_IFIFO => Kind::Fifo,
            SFlag::S_IFREG => Kind::File,
            SFlag::S_IFSOCK => return refuse("a socket"),
            _ => return refuse("a device"),
        };
        let owner_may = match kind {
            Kind::Directory => 0o500,
            Kind::File => 0o400,
            _ => 0,
        };
        if self.lent.is_some() && stat.st_mode & owner_may != owner_may {
            // A mapping of it could not be made again, and the session would be lost.
            let path = self.path(&path);
            return Err(SnapshotRefusal::Unreadable { path });
        }
        self.names.push((path.clone(), stat.st_ino));
        let node = Node { kind, stat, path };
        self.nodes.entry(stat.st_ino).or_insert(node);
        Ok(())
    }

    fn path(&self, path: &CStr) -> String {
        format!("{}/{}", self.root.display(), path.to_string_lossy())
    }

    fn require_unwritten(&self, node: &Node, file: &OwnedFd) -> Result<(), SnapshotRefusal> {
        let lent = self.lent;
        let Some(lent) = lent.filter(|lent| lent.inodes.contains(&node.stat.st_ino)) else {
            return Ok(());
        };
        let is_written = as_guest(lent.owner, || sys::lease::is_written(file.as_fd()));
        if is_written.doing("see whether its file is written to")? {
            let path = self.path(&node.path);
            return Err(SnapshotRefusal::Lent { path });
        }
        Ok(())
    }

    /// Names a file that its owner may not read, which is a user as any other to the kernel.
    fn opened(
        &self,
        path: &CStr,
        opened: Result<OwnedFd, Errno>,
    ) -> Result<OwnedFd, SnapshotRefusal> {
        match opened {
            Err(Errno::EACCES) => Err(SnapshotRefusal::Unreadable {
                path: self.path(path),
            }),
            other => other.doing("open its file"),
        }
    }

    fn write(&self, writer: &mut impl Write) -> Result<(), SnapshotRefusal> {
        for node in self.nodes.values() {
            let handle = open_beneath(self.directory, &node.path, OFlag::O_PATH);
            let handle = self.opened(&node.path, handle)?;
            let size = u64::try_from(node.stat.st_size).unwrap_or(0);
            match node.kind {
                Kind::Symlink => {
                    let target = readlinkat(&handle, c"").doing("read its link")?;
                    let target = target.as_encoded_bytes();
                    entry(writer, node.kind, c"", &node.stat, target.len() as u64)?;
                    writer.write_all(target).doing("write an image")?;
                }
                Kind::File => {
                    let file = reopen(&handle, OFlag::O_RDONLY);
                    let file = self.opened(&node.path, file)?;
                    self.require_unwritten(node, &file)?;
                    entry(writer, node.kind, c"", &node.stat, size)?;
                    pieces(writer, &file.into(), size).doing("copy its file")?;
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

/// Writes the parts of a file that are not a hole.
fn pieces(writer: &mut impl Write, file: &File, size: u64) -> io::Result<()> {
    let seek = |from: u64, whence| -> io::Result<Option<u64>> {
        match lseek(
            file.as_fd(),
            i64::try_from(from).unwrap_or(i64::MAX),
            whence,
        ) {
            Err(Errno::ENXIO) => Ok(None),
            other => Ok(u64::try_from(other?).ok()),
        }
    };
    let mut at = 0;
    while let Some(start) = seek(at, Whence::SeekData)?.filter(|start| *start < size) {
        let end = seek(start, Whence::SeekHole)?.unwrap_or(size).min(size);
        writer.write_all(&piece(start, end - start))?;
        at = start;
        with_buffer(|buffer| -> io::Result<()> {
            while at < end {
                let now = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
                file.read_exact_at(&mut buffer[..now], at)?;
                writer.write_all(&buffer[..now])?;
                at += now as u64;
            }
            Ok(())
        })?;
    }
    writer.write_all(&piece(0, 0))
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
