//! What a worker's files occupy at its end.

use std::os::fd::OwnedFd;

use nix::sys::statvfs::fstatvfs;

use crate::outcome::LimitName;
use crate::plan::FileQuota;
use crate::supervisor::session::SessionDirectory;

/// How much space the files occupy, and which quota is used up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Files {
    /// Bytes of all files together. `None` if they could not be measured.
    pub bytes: Option<u64>,
    /// What the kernel meant by `ENOSPC`, if the guest received it.
    pub no_room: NoRoom,
}

/// What is out of space when a guest receives `ENOSPC`.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum NoRoom {
    /// A file system of the worker's own. Holds the quota that is used up now, if one still is.
    Quota(Option<LimitName>),
    /// The host's disk: the files are in a directory there, and a worker over its quota is killed.
    #[default]
    Host,
}

impl Files {
    /// Measures a session's directory on the host. It is full when the watchdog reports so.
    pub fn of_session(session: &SessionDirectory, quota: FileQuota) -> Self {
        Self {
            bytes: Some(session.count(quota).size().bytes),
            no_room: NoRoom::Host,
        }
    }

    /// Measures private file systems, through the descriptors that the worker passed before it ran
    /// guest code: the work directory, then those that share the quota of `/tmp`.
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
