//! Unpacks the files of another worker into this worker's directories.
//!
//! These directories contain mounts of host paths that the policy shows, some of them writable. Nothing here reaches
//! into a mount: the kernel opens no directory across a mount point ([`open_own`], [`Nearest`]), does not rename or
//! link files between file systems, and neither removes nor replaces a mount point.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::Path;

use nix::NixPath;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, renameat};
use nix::sys::stat::{
    FchmodatFlags, Mode, UtimensatFlags, fchmod, fchmodat, fstat, fstatat, futimens, mkdirat,
    utimensat,
};
use nix::sys::time::TimeSpec;
use nix::unistd::{UnlinkatFlags, linkat, mkfifoat, symlinkat, unlinkat};

use super::nearest::Nearest;
use sandfork_jail::archive::{ENTRY, Entry, Kind, PIECE, piece_of};

/// The size of the copy buffer, bytes.
const CHUNK: usize = 1 << 20;

/// The maximum number of inode numbers of a tree that are skipped to recreate others.
const MAX_SKIPPED: u64 = 100_000;

/// All permission bits of a mode.
const MODE: u32 = 0o7777;

/// The permission bits that no filter refuses. The others, set-user-ID and set-group-ID, make a program run as its
/// owner.
const HARMLESS: u32 = 0o1777;

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Replaces the contents of these directories by those in the stream.
pub fn unpack(stream: &File, directories: &[String]) -> Result<(), String> {
    let mut reader = BufReader::with_capacity(CHUNK, stream);
    for directory in directories {
        let failed = |error: io::Error| format!("`{directory}` cannot be restored: {error}");
        let root = open(directory.as_str(), DIRECTORY, Mode::empty()).map_err(io::Error::from);
        let root = root.map_err(failed)?;
        let mut tree = Tree::new(root).map_err(failed)?;
        clear(&tree.root, Path::new(""), &mut tree.kept)
            .map_err(io::Error::from)
            .map_err(failed)?;
        tree.fill(&mut reader).map_err(failed)?;
    }
    Ok(())
}

/// Opens a directory by a path that neither contains symbolic links nor crosses mount points.
fn open_own<P: ?Sized + NixPath>(above: &OwnedFd, path: &P) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlag::RESOLVE_NO_XDEV
        | ResolveFlag::RESOLVE_NO_SYMLINKS
        | ResolveFlag::RESOLVE_BENEATH;
    openat2(
        above,
        path,
        OpenHow::new().flags(DIRECTORY).resolve(resolve),
    )
}

/// Removes the contents of a directory. Mounts stay, with the directories that contain them: every worker has them.
/// Adds these directories and their inode numbers to `kept`.
fn clear(
    directory: &OwnedFd,
    path: &Path,
    kept: &mut BTreeMap<u64, OsString>,
) -> Result<(), Errno> {
    for entry in Dir::from_fd(open_own(directory, ".")?)?.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        match unlinkat(directory, name, UnlinkatFlags::NoRemoveDir) {
            // A directory, possibly a mount point.
            Err(Errno::EISDIR) => {}
            // A file that is a mount point, or a removed file.
            Err(Errno::EBUSY) | Ok(()) => continue,
            Err(errno) => return Err(errno),
        }
        let inner = match open_own(directory, name) {
            Err(Errno::EXDEV) => continue,
            other => other?,
        };
        let path = path.join(OsStr::from_bytes(name.to_bytes()));
        clear(&inner, &path, kept)?;
        match unlinkat(directory, name, UnlinkatFlags::RemoveDir) {
            Ok(()) => {}
            // The directory contains a mount.
            Err(Errno::ENOTEMPTY) => {
                kept.insert(fstat(&inner)?.st_ino, path.into());
            }
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// A tree that is being filled. Its files are created in the tree's root directory, each under a name derived from its
/// inode number, and are renamed afterwards.
struct Tree {
    root: OwnedFd,
    /// Opens the directories in which files get their names.
    nearest: Nearest,
    /// The directories that were not removed, by inode number, which is the same in every worker. They are not created
    /// again, because a tree may be at its inode quota.
    kept: BTreeMap<u64, OsString>,
    /// The prefix of staged names. Random, because the guest may have a file of any fixed name.
    prefix: String,
    /// The files that have no name yet, by their original inode number.
    unnamed: BTreeSet<u64>,
    /// The first name of each file that has one, by original inode number.
    named: BTreeMap<u64, OsString>,
    /// The directories in the order of their names.
    directories: Vec<(OsString, Entry)>,
    /// The number of inode numbers that may still be skipped.
    spare: u64,
    /// The inode number of the next file, once it is known.
    next: Option<u64>,
}

impl Tree {
    fn new(root: OwnedFd) -> io::Result<Self> {
        let mut random = [0; 16];
        File::open("/dev/urandom")?.read_exact(&mut random)?;
        Ok(Self {
            nearest: Nearest::new(root.try_clone()?),
            root,
            prefix: format!(".sandfork-{:032x}", u128::from_ne_bytes(random)),
            kept: BTreeMap::new(),
            unnamed: BTreeSet::new(),
            named: BTreeMap::new(),
            directories: Vec::new(),
            spare: MAX_SKIPPED,
            next: None,
        })
    }

    fn fill(&mut self, reader: &mut impl Read) -> io::Result<()> {
        let mut made = BTreeMap::new();
        loop {
            let mut bytes = [0; ENTRY];
            reader.read_exact(&mut bytes)?;
            let entry = Entry::decode(&bytes).ok_or(io::ErrorKind::InvalidData)?;
            let name = text(reader, entry.name)?;
            match entry.kind {
                Kind::Root => {
                    for (path, of) in self.directories.iter().rev() {
                        finish_directory(&mut self.nearest, Path::new(path), *of)?;
                    }
                    return finish(&self.root, entry);
                }
                Kind::Name => {
                    let path = OsString::from_vec(name);
                    if made.get(&entry.inode) == Some(&Kind::Directory) {
                        self.directories.push((path.clone(), entry));
                    }
                    self.name(entry.inode, path)?;
                }
                Kind::Directory if self.kept.contains_key(&entry.inode) => {
                    made.insert(entry.inode, Kind::Directory);
                }
                kind => {
                    self.make(entry, reader)?;
                    made.insert(entry.inode, kind);
                    self.unnamed.insert(entry.inode);
                }
            }
        }
    }

    /// Creates a file with its original inode number, if the file system has not passed that number yet: a guest's
    /// program may compare it, as SQLite does. The file system numbers files consecutively.
    fn make(&mut self, entry: Entry, reader: &mut impl Read) -> io::Result<()> {
        let target = match entry.kind {
            Kind::Symlink => text(reader, usize::try_from(entry.size).unwrap_or(0))?,
            _ => Vec::new(),
        };
        let name = self.staged_name(entry.inode);
        let name = name.as_str();
        self.skip_inodes(entry.inode)?;
        let mut made = self.create(entry, name, &target)?;
        if made < entry.inode && self.spare > 0 {
            let how = match entry.kind {
                Kind::Directory => UnlinkatFlags::RemoveDir,
                _ => UnlinkatFlags::NoRemoveDir,
            };
            unlinkat(&self.root, name, how)?;
            self.next = Some(made + 1);
            self.skip_inodes(entry.inode)?;
            made = self.create(entry, name, &target)?;
        }
        self.next = Some(made + 1);
        match entry.kind {
            Kind::File => {
                let flags = OFlag::O_WRONLY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
                let file = File::from(openat(&self.root, name, flags, Mode::empty())?);
                copy(reader, &file, entry.size)?;
                finish(&file.into(), entry)
            }
            Kind::Symlink => {
                let (time, flags) = (time_of(entry), UtimensatFlags::NoFollowSymlink);
                Ok(utimensat(&self.root, name, &time, &time, flags)?)
            }
            _ => Ok(()),
        }
    }

    /// Creates an empty file. Returns its inode number.
    fn create(&self, entry: Entry, name: &str, target: &[u8]) -> io::Result<u64> {
        match entry.kind {
            Kind::Directory => mkdirat(&self.root, name, Mode::S_IRWXU)?,
            Kind::Symlink => symlinkat(OsStr::from_bytes(target), &self.root, name)?,
            Kind::Fifo => mkfifoat(
                &self.root,
                name,
                Mode::from_bits_truncate(entry.mode & MODE),
            )?,
            _ => {
                let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
                openat(&self.root, name, flags, Mode::S_IRUSR | Mode::S_IWUSR).map(drop)?;
            }
        }
        let made = fstatat(&self.root, name, AtFlags::AT_SYMLINK_NOFOLLOW)?;
        Ok(made.st_ino)
    }

    /// Skips the inode numbers before `wanted`.
    fn skip_inodes(&mut self, wanted: u64) -> io::Result<()> {
        let flags = OFlag::O_RDWR | OFlag::O_TMPFILE | OFlag::O_CLOEXEC;
        while let Some(next) = self.next
            && next < wanted
            && self.spare > 0
        {
            let unused = openat(&self.root, ".", flags, Mode::S_IRUSR)?;
            self.next = Some(fstat(&unused)?.st_ino + 1);
            self.spare -= 1;
        }
        Ok(())
    }

    fn name(&mut self, inode: u64, path: OsString) -> io::Result<()> {
        let at = Path::new(&path);
        let (above, name) = (
            at.parent().unwrap_or(at),
            at.file_name().unwrap_or_default(),
        );
        let staged = self.staged_name(inode);
        let (root, above) = (&self.root, self.nearest.open(above)?);
        if let Some(kept) = self.kept.get(&inode) {
            if *kept != path {
                mkdirat(above, name, Mode::S_IRWXU)?;
            }
        } else if self.unnamed.remove(&inode) {
            match renameat(root, staged.as_str(), above, name) {
                // The directory exists already, because it contains a mount.
                Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                    unlinkat(root, staged.as_str(), UnlinkatFlags::RemoveDir)?;
                }
                other => other?,
            }
            self.named.insert(inode, path);
        } else if let Some(first) = self.named.get(&inode) {
            linkat(root, first.as_os_str(), above, name, AtFlags::empty())?;
        }
        Ok(())
    }

    /// Returns the name of a file until it is renamed.
    fn staged_name(&self, inode: u64) -> String {
        format!("{}-{inode}", self.prefix)
    }
}

/// Copies the pieces of a file.
fn copy(reader: &mut impl Read, file: &File, size: u64) -> io::Result<()> {
    let mut chunk = vec![0; CHUNK];
    loop {
        let mut head = [0; PIECE];
        reader.read_exact(&mut head)?;
        let (mut offset, mut length) = piece_of(&head);
        if length == 0 {
            return file.set_len(size);
        }
        while length > 0 {
            let now = usize::try_from(length).unwrap_or(CHUNK).min(CHUNK);
            reader.read_exact(&mut chunk[..now])?;
            file.write_all_at(&chunk[..now], offset)?;
            offset += now as u64;
            length -= now as u64;
        }
    }
}

/// Sets the attributes that writing to a file changes: mode and times.
fn finish(handle: &OwnedFd, entry: Entry) -> io::Result<()> {
    set_mode(entry, |mode| fchmod(handle.as_fd(), mode))?;
    let time = time_of(entry);
    Ok(futimens(handle.as_fd(), &time, &time)?)
}

/// Sets the attributes that filling a directory changes: mode and times.
fn finish_directory(nearest: &mut Nearest, path: &Path, entry: Entry) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default();
    let above = nearest.open(path.parent().unwrap_or(path))?;
    set_mode(entry, |mode| {
        fchmodat(above, name, mode, FchmodatFlags::FollowSymlink)
    })?;
    let (time, flags) = (time_of(entry), UtimensatFlags::NoFollowSymlink);
    Ok(utimensat(above, name, &time, &time, flags)?)
}

fn set_mode(entry: Entry, set: impl Fn(Mode) -> Result<(), Errno>) -> Result<(), Errno> {
    let mode = |mask| Mode::from_bits_truncate(entry.mode & mask);
    match set(mode(MODE)) {
        Err(Errno::EPERM) => set(mode(HARMLESS)),
        other => other,
    }
}

fn time_of(entry: Entry) -> TimeSpec {
    TimeSpec::new(entry.modified.0, entry.modified.1.into())
}

fn text(reader: &mut impl Read, length: usize) -> io::Result<Vec<u8>> {
    let mut text = vec![0; length];
    reader.read_exact(&mut text)?;
    Ok(text)
}
