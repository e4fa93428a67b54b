//! Keeps the files of sessions on hosts where nothing can be mounted (level `landlock`): each session has a directory
//! on the host, which is removed with its contents when the session ends.

mod removal;
mod size;

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fchmod, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, geteuid, unlinkat};

pub use self::removal::make_usable;
pub use self::size::{Count, Size};

use super::error::SupervisorError;
use super::instance_name;
use super::random::random;
use crate::error::ErrorKind;
use crate::plan::FileQuota;
use sandfork_jail::program::{HostIds, ZygoteJail};
use sandfork_jail::sys::errno_of;

/// This supervisor's directory, which holds its sessions' directories.
///
/// Dropping it removes the directory. If the supervisor is killed first, the next supervisor that the same user starts
/// removes it.
#[derive(Debug)]
pub struct SessionRoot {
    /// The directory for temporary files.
    place: OwnedFd,
    name: String,
    path: PathBuf,
    dir: OwnedFd,
    guest: Option<HostIds>,
    next: AtomicU64,
}

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Access for the owner only.
const PRIVATE: Mode = Mode::S_IRWXU;

impl SessionRoot {
    /// Creates this supervisor's directory in the one for temporary files (`TMPDIR`, or `/tmp`).
    pub fn create(jail: &ZygoteJail) -> Result<Self, SupervisorError> {
        Self::create_in(&std::env::temp_dir(), jail)
    }

    fn create_in(place: &Path, jail: &ZygoteJail) -> Result<Self, SupervisorError> {
        let path = fs::canonicalize(place).map_err(|error| refused(place, error))?;
        let guest = jail.identity.drop_to;
        check_place(&path, jail, guest).map_err(|cause| refused(place, cause))?;
        Self::make(&path, guest).map_err(|errno| refused(place, errno.desc()))
    }

    fn make(place_path: &Path, guest: Option<HostIds>) -> Result<Self, Errno> {
        let place = open(place_path, DIRECTORY, Mode::empty())?;
        sweep(place_path, &place);
        // The name is unpredictable, so that no other user can create it first.
        let owner = instance_name::own_name().map_err(errno_of)?;
        let bits = u128::from_be_bytes(random().map_err(errno_of)?);
        let name = format!("{owner}.{bits:032x}");
        mkdirat(&place, name.as_str(), PRIVATE)?;
        let dir = openat(&place, name.as_str(), DIRECTORY, Mode::empty())?;
        // A guest under another user must traverse this directory to reach its own, but cannot list its entries.
        let mode = if guest.is_some() {
            PRIVATE | Mode::S_IXGRP | Mode::S_IXOTH
        } else {
            PRIVATE
        };
        fchmod(&dir, mode)?;
        Ok(Self {
            path: place_path.join(&name),
            place,
            name,
            dir,
            guest,
            next: AtomicU64::new(0),
        })
    }

    /// Creates the directory of one session.
    pub fn directory(self: &Arc<Self>) -> Result<SessionDirectory, SupervisorError> {
        let name = format!("w{}", self.next.fetch_add(1, Ordering::Relaxed));
        let make = || -> Result<OwnedFd, Errno> {
            mkdirat(&self.dir, name.as_str(), PRIVATE)?;
            let dir = openat(&self.dir, name.as_str(), DIRECTORY, Mode::empty())?;
            // Sets the mode regardless of the umask.
            fchmod(&dir, PRIVATE)?;
            if let Some(HostIds { uid, gid }) = self.guest {
                fchown(&dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
            }
            Ok(dir)
        };
        let dir = make().map_err(|errno| refused(&self.path, errno.desc()))?;
        Ok(SessionDirectory {
            root: Arc::clone(self),
            path: self.path.join(&name),
            name,
            dir,
        })
    }
}

/// Builds the error for a directory that cannot hold the files of sessions.
fn refused(path: &Path, cause: impl fmt::Display) -> SupervisorError {
    SupervisorError::new(
        ErrorKind::Host,
        format!(
            "cannot keep the files of sessions in {}: {cause}; set TMPDIR to another directory",
            path.display()
        ),
    )
}

impl Drop for SessionRoot {
    fn drop(&mut self) {
        // Fails if a session's directory could not be removed. The next supervisor then removes both.
        _ = unlinkat(&self.place, self.name.as_str(), UnlinkatFlags::RemoveDir);
    }
}

/// The directory of one session, removed when dropped. All processes of the session must have ended by then.
#[derive(Debug)]
pub struct SessionDirectory {
    root: Arc<SessionRoot>,
    path: PathBuf,
    name: String,
    /// A descriptor of the directory.
    pub dir: OwnedFd,
}

impl SessionDirectory {
    /// Returns the directory's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Measures its contents.
    pub fn count(&self, quota: FileQuota) -> Count {
        Count::tree(self.dir.as_fd(), quota)
    }
}

impl Drop for SessionDirectory {
    fn drop(&mut self) {
        // A later sweep removes the rest.
        if let Ok(name) = CString::new(self.name.as_str()) {
            _ = removal::remove_tree(self.root.dir.as_fd(), &name);
        }
    }
}

/// Checks that a directory can hold the files of sessions. The error is the rest of a sentence.
fn check_place(path: &Path, jail: &ZygoteJail, guest: Option<HostIds>) -> Result<(), String> {
    if path.to_str().is_none() {
        return Err("its name is not UTF-8".to_owned());
    }
    let mode = |path: &Path| fs::metadata(path).map(|found| found.permissions().mode());
    let own = mode(path).map_err(|error| error.to_string())?;
    if own & 0o022 != 0 && own & 0o1000 == 0 {
        return Err("other users can rename its entries, because it has no sticky bit".to_owned());
    }
    let closed = |path: &&Path| !mode(path).is_ok_and(|mode| mode & 0o001 != 0);
    if let Some(closed) = path.ancestors().find(closed).filter(|_| guest.is_some()) {
        let closed = closed.display();
        return Err(format!(
            "the unprivileged user that guests run as cannot enter {closed}"
        ));
    }
    let rules = jail.landlock.iter().flat_map(|rules| &rules.paths);
    let covers = |rule: &PathBuf| fs::canonicalize(rule).is_ok_and(|rule| path.starts_with(rule));
    match rules.map(|rule| &rule.path).find(|rule| covers(rule)) {
        Some(rule) => Err(format!("every guest can read {}", rule.display())),
        None => Ok(()),
    }
}

/// Removes the directories that ended supervisors left in the directory for temporary files.
fn sweep(path: &Path, place: &OwnedFd) {
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.split_once('.'));
        let abandoned = owner.is_some_and(|(owner, _)| instance_name::is_abandoned(owner));
        // Any user can create a directory with such a name and any contents.
        let own = entry
            .metadata()
            .is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw());
        if let Ok(name) = CString::new(name.as_bytes())
            && abandoned
            && own
        {
            _ = removal::remove_root(place.as_fd(), &name);
        }
    }
}

#[cfg(test)]
mod tests;
