//! What a worker's files take at its end.

use std::os::fd::OwnedFd;

use nix::sys::statvfs::fstatvfs;

use crate::outcome::LimitName;
use crate::plan::FileQuota;
use crate::supervisor::session::SessionDirectory;

/// How much they take, and what is used up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Files {
    /// Bytes that they hold together; none where that could not be told.
    pub bytes: Option<u64>,
    /// What a guest means to which the kernel said that there is no room.
    pub no_room: NoRoom,
}

/// What has no room, where a guest finds that there is none (`ENOSPC`).
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NoRoom {
    /// A file system of its own: the quota that is used up now, if one still is.
    Quota(Option<LimitName>),
    /// The host's disk: its files are in a directory there, and whoever is over its quota is killed.
    #[default]
    Host,
}

impl Files {
    /// Measures a session's directory of the host, which is full when the watchdog says so.
    pub fn of_session(session: &SessionDirectory, quota: FileQuota) -> Self {
        Self {
            bytes: Some(session.count(quota).size().bytes),
            no_room: NoRoom::Host,
        }
    }

    /// Measures private file systems, through the descriptors that the worker handed over before it
    /// ran guest code: the work directory, then those that share the quota of `/tmp`.
    pub fn measure(directories: &[OwnedFd]) -> Self {
        let quotas = std::iter::once((LimitName::WorkSize, LimitName::WorkInodes)).chain(
            std::iter::repeat((LimitName::TmpSize, LimitName::TmpInodes)),
        );
        let (mut bytes, mut full) = (Some(0), None);
        for (directory, (size, inodes)) in directories.iter().zip(quotas) {
            let Ok(stat) = fstatvfs(directory) else {
                bytes = None;
                continue;
            };
            let used = (stat.blocks() - stat.blocks_free()) * stat.fragment_size();
            bytes = bytes.map(|bytes| bytes + used);
            let used_up = match (stat.files_free(), stat.blocks_free()) {
                (0, _) => Some(inodes),
                (_, 0) => Some(size),
                _ => None,
            };
            full = full.or(used_up);
        }
        Self {
            bytes,
            no_room: NoRoom::Quota(full),
        }
    }
}
