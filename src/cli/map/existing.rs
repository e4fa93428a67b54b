//! Opens an existing file under the rules of `fs.protected_symlinks`, `fs.protected_regular` and `fs.protected_fifos`
//! (proc_sys_fs(5)), regardless of this host's settings: in a world-writable directory, another user's entry is never
//! followed, opened or waited for.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat, readlinkat, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat};
use nix::sys::statfs::{PROC_SUPER_MAGIC, fstatfs};
use nix::unistd::{UnlinkatFlags, geteuid, unlinkat};

use crate::environments::directory_of;

/// The maximum number of links that the kernel follows (path_resolution(7)).
const MAX_LINKS: usize = 40;

const DIRECTORY: OFlag = OFlag::O_PATH
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_CLOEXEC);
const HANDLE: OFlag = OFlag::O_PATH.union(OFlag::O_CLOEXEC);

/// An existing file. It stays the same file even if another file takes its name.
#[derive(Debug)]
pub struct Existing {
    directory: OwnedFd,
    name: OsString,
    /// The flags with which a handle on the file is opened.
    flags: OFlag,
    handle: OwnedFd,
    stat: FileStat,
}

impl Existing {
    /// Finds the file at a path.
    ///
    /// # Errors
    ///
    /// If the file does not exist, or if the file or a link on the way belongs to another user in a world-writable
    /// directory.
    pub fn find(path: &Path) -> io::Result<Self> {
        let mut directory = open(".", DIRECTORY, Mode::empty())?;
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            let name = path.file_name().ok_or(Errno::EISDIR)?.to_owned();
            directory = openat(&directory, directory_of(&path), DIRECTORY, Mode::empty())?;
            let flags = if fstatfs(&directory)?.filesystem_type() == PROC_SUPER_MAGIC {
                // Links in procfs refer to open files, which may have no path.
                HANDLE
            } else {
                HANDLE | OFlag::O_NOFOLLOW
            };
            let handle = openat(&directory, name.as_os_str(), flags, Mode::empty())?;
            let stat = fstat(&handle)?;
            reject_entry_of_other_user(&fstat(&directory)?, &stat)?;
            if kind(&stat) != SFlag::S_IFLNK {
                return Ok(Self {
                    directory,
                    name,
                    flags,
                    handle,
                    stat,
                });
            }
            path = PathBuf::from(readlinkat(&handle, "")?);
        }
        Err(Errno::ELOOP.into())
    }

    /// Returns whether it is a regular file, not a device or a pipe.
    pub fn is_regular(&self) -> bool {
        kind(&self.stat) == SFlag::S_IFREG
    }

    /// Opens the file.
    pub fn open(&self, options: &OpenOptions) -> io::Result<File> {
        options.open(format!("/proc/self/fd/{}", self.handle.as_raw_fd()))
    }

    /// Returns whether its name still refers to it.
    pub fn is_there(&self) -> io::Result<bool> {
        let there = openat(
            &self.directory,
            self.name.as_os_str(),
            self.flags,
            Mode::empty(),
        )?;
        let there = fstat(&there)?;
        Ok((there.st_dev, there.st_ino) == (self.stat.st_dev, self.stat.st_ino))
    }

    /// Creates a new file beside it, readable only by its owner. Removes an existing file of that name.
    pub fn beside(&self, suffix: &str) -> io::Result<Beside<'_>> {
        let mut name = self.name.clone();
        name.push(suffix);
        match unlinkat(
            &self.directory,
            name.as_os_str(),
            UnlinkatFlags::NoRemoveDir,
        ) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        let flags = OFlag::O_RDWR | OFlag::O_APPEND | OFlag::O_CREAT | OFlag::O_EXCL;
        let mode = Mode::S_IRUSR | Mode::S_IWUSR;
        let file = openat(
            &self.directory,
            name.as_os_str(),
            flags | OFlag::O_CLOEXEC,
            mode,
        )?;
        Ok(Beside {
            file: file.into(),
            name,
            of: self,
        })
    }
}

/// A new file beside another file, which it replaces atomically.
#[derive(Debug)]
pub struct Beside<'e> {
    /// The new file, open for reading and appending.
    pub file: File,
    name: OsString,
    of: &'e Existing,
}

impl Beside<'_> {
    /// Renames the new file over the file beside it.
    pub fn replace_original(&self) -> io::Result<()> {
        let directory = &self.of.directory;
        let (from, to): (&OsStr, &OsStr) = (&self.name, &self.of.name);
        Ok(renameat(directory, from, directory, to)?)
    }

    /// Removes the new file.
    pub fn remove(&self) {
        let directory = &self.of.directory;
        _ = unlinkat(directory, self.name.as_os_str(), UnlinkatFlags::NoRemoveDir);
    }
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

/// Rejects another user's entry in a world-writable directory.
fn reject_entry_of_other_user(directory: &FileStat, found: &FileStat) -> io::Result<()> {
    let shared = Mode::S_ISVTX.union(Mode::S_IWOTH);
    let is_shared = Mode::from_bits_truncate(directory.st_mode).contains(shared);
    if !is_shared || [geteuid().as_raw(), directory.st_uid].contains(&found.st_uid) {
        return Ok(());
    }
    let what = match kind(found) {
        SFlag::S_IFLNK => "link",
        _ => "file",
    };
    Err(io::Error::new(
        io::ErrorKind::PermissionDenied,
        format!(
            "it is a {what} of uid {}, in a world-writable directory",
            found.st_uid
        ),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn own_links_are_followed() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::create_dir(at("within")).unwrap();
        fs::write(at("within/file"), "contents").unwrap();
        symlink("within/file", at("link")).unwrap();
        symlink(at("link"), at("link to a link")).unwrap();
        for mode in [0o700, 0o1777] {
            fs::set_permissions(directory.path(), Permissions::from_mode(mode)).unwrap();
            let found = Existing::find(&at("link to a link")).unwrap();
            assert!(found.is_regular() && found.is_there().unwrap());
            let file = found.open(OpenOptions::new().read(true)).unwrap();
            assert_eq!(io::read_to_string(file).unwrap(), "contents");
        }
        symlink("round", at("round")).unwrap();
        symlink("missing", at("dangling")).unwrap();
        let errors = ["round", "dangling", "missing", "file/.."].map(|name| {
            let error = Existing::find(&at(name)).unwrap_err();
            error.raw_os_error().map(Errno::from_raw)
        });
        let expected = [Errno::ELOOP, Errno::ENOENT, Errno::ENOENT, Errno::EISDIR];
        assert_eq!(errors, expected.map(Some));
    }

    #[test]
    fn proc_links_open_the_descriptor() {
        let (_reader, writer) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", writer.as_raw_fd());
        let pipe = Existing::find(Path::new(&path)).unwrap();
        assert!(!pipe.is_regular());
        pipe.open(OpenOptions::new().append(true)).unwrap();
    }

    #[test]
    fn link_of_another_user_is_rejected() {
        if !geteuid().is_root() {
            // Only root can create another user's file.
            return;
        }
        let directory = tempfile::tempdir().unwrap();
        let shared = Permissions::from_mode(0o1777);
        fs::set_permissions(directory.path(), shared).unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "contents").unwrap();
        symlink(&file, &link).unwrap();
        Existing::find(&link).unwrap();
        std::os::unix::fs::lchown(&link, Some(4242), None).unwrap();
        let refused = Existing::find(&link).unwrap_err().to_string();
        assert!(
            refused.starts_with("it is a link of uid 4242, in a world-writable directory"),
            "{refused}"
        );
    }

    #[test]
    fn entries_of_others_are_rejected_in_shared_directories() {
        let stat = |mode: u32, uid: u32| {
            let mut stat = fstat(open("/", DIRECTORY, Mode::empty()).unwrap()).unwrap();
            (stat.st_mode, stat.st_uid) = (mode, uid);
            stat
        };
        let own = geteuid().as_raw();
        let (owner, other) = (own + 1, own + 2);
        for (directory, found, refused) in [
            (0o41777, other, true),
            (0o41777, own, false),
            (0o41777, owner, false),
            (0o40777, other, false),
            (0o41755, other, false),
        ] {
            for kind in [SFlag::S_IFLNK, SFlag::S_IFREG, SFlag::S_IFIFO] {
                let found = stat(kind.bits() | 0o644, found);
                let result = reject_entry_of_other_user(&stat(directory, owner), &found);
                assert_eq!(result.is_err(), refused, "{directory:o} {found:?}");
            }
        }
    }
}
