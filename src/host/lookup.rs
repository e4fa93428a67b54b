//! Checks whether the host has a path that a guest named.
//!
//! A guest chooses the path, so a lookup must neither block nor have side effects: a network or user-space file system
//! (NFS, FUSE) may never answer, and an automounter mounts what is looked up. So only paths on local file systems are
//! looked up, from the nearest mount point down, without crossing another mount, following a symbolic link or opening a
//! file.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat2};

use super::mountinfo::{Mount, parse};

/// File systems that answer without another machine or a user-space process.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "overlay",
    "ramfs", "squashfs", "tmpfs", "vfat", "xfs", "zfs",
];

/// The mount table of this process.
#[derive(Debug)]
pub struct Lookup(Vec<Mount>);

impl Lookup {
    /// Reads the mount table.
    pub fn new() -> io::Result<Self> {
        // Mount points are bytes. One that is not UTF-8 is a prefix of no path that is UTF-8.
        let table = fs::read("/proc/self/mountinfo")?;
        Ok(Self(parse(&String::from_utf8_lossy(&table))))
    }

    /// Returns whether an absolute path exists. `None` if that cannot be determined without blocking or following a
    /// symbolic link.
    pub fn exists(&self, path: &Path) -> Option<bool> {
        let mut parts = path.components();
        let is_plain = parts.next() == Some(Component::RootDir)
            && parts.all(|part| matches!(part, Component::Normal(_)));
        let above: Vec<&Mount> = self
            .0
            .iter()
            .filter(|mount| path.starts_with(&mount.point))
            .collect();
        // Of several mounts at one point, only the last is visible.
        let nearest = above
            .iter()
            .max_by_key(|mount| mount.point.components().count())?;
        if !is_plain
            || !above
                .iter()
                .all(|mount| LOCAL.contains(&mount.kind.as_str()))
        {
            return None;
        }
        let mount = open(AT_FDCWD, &nearest.point, ResolveFlag::empty()).ok()?;
        let rest = path.strip_prefix(&nearest.point).ok()?;
        if rest.as_os_str().is_empty() {
            return Some(true);
        }
        let within = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_XDEV;
        match open(mount, rest, within) {
            Ok(_) => Some(true),
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ENAMETOOLONG) => Some(false),
            Err(_) => None,
        }
    }
}

/// Opens an `O_PATH` handle, which neither opens the file nor triggers an automount.
fn open(directory: impl AsFd, path: &Path, more: ResolveFlag) -> Result<OwnedFd, Errno> {
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_MAGICLINKS | more);
    openat2(directory, path, how)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn paths_on_local_file_systems_are_found() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        fs::write(root.join("file"), "").unwrap();
        symlink(root.join("file"), root.join("link")).unwrap();
        symlink(&root, root.join("loop")).unwrap();
        let lookup = Lookup::new().unwrap();
        let exists = |name: &str| lookup.exists(&root.join(name));
        assert_eq!(exists("file"), Some(true));
        assert_eq!(exists("missing"), Some(false));
        assert_eq!(exists("file/beneath"), Some(false));
        // Links are not followed.
        assert_eq!(exists("loop/file"), None);
        for path in ["relative", "/..", "/tmp/../etc", ""] {
            assert_eq!(lookup.exists(Path::new(path)), None, "{path}");
        }
    }

    #[test]
    fn paths_on_remote_file_systems_are_not_looked_up() {
        let mount = |point: &str, kind: &str| Mount {
            root: "/".into(),
            point: point.into(),
            kind: kind.into(),
            options: Vec::new(),
        };
        let table = vec![
            mount("/", "tmpfs"),
            mount("/etc", "nfs4"),
            mount("/etc/local", "ext4"),
            mount("/usr", "ext4"),
            mount("/usr", "fuse.sshfs"),
            mount("/home", "autofs"),
        ];
        let lookup = Lookup(table);
        for path in [
            "/etc/passwd",
            "/etc/local/x",
            "/usr/bin",
            "/usr",
            "/home/x",
            "/home",
        ] {
            assert_eq!(lookup.exists(Path::new(path)), None, "{path}");
        }
        assert_eq!(lookup.exists(Path::new("/tmp")), Some(true));
        assert_eq!(lookup.exists(Path::new("/no such directory")), Some(false));
        assert_eq!(Lookup(Vec::new()).exists(Path::new("/tmp")), None);
    }
}
