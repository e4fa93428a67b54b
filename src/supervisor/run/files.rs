//! What a worker's files take at its end.

use std::os::fd::OwnedFd;

use nix::sys::statvfs::fstatvfs;

use crate::outcome::LimitName;
use crate::plan::FileQuota;
use crate::supervisor::session::SessionDirectory;

/// How much they take, and what is used up.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Files {
    /// Bytes that they hold together; none where they are no file systems of their own.
    pub bytes: Option<u64>,
    /// The quota that is used up, if one is.
    pub full: Option<LimitName>,
}

impl Files {
    /// Measures a session's directory of the host, which is full when the watchdog says so.
    pub fn of_session(session: &SessionDirectory, quota: FileQuota) -> Self {
        Self {
            bytes: Some(session.count(quota).size().bytes),
            full: None,
        }
    }

    /// Measures private file systems, through the descriptors that the worker handed over before it
    /// ran guest code: the work directory, then those that share the quota of `/tmp`.
    pub fn measure(directories: &[OwnedFd]) -> Self {
        let quotas = std::iter::once((LimitName::WorkSize, LimitName::WorkInodes)).chain(
            std::iter::repeat((LimitName::TmpSize, LimitName::TmpInodes)),
        );
        let mut files = Self {
            bytes: Some(0),
            full: None,
        };
        for (directory, (size, inodes)) in directories.iter().zip(quotas) {
            let Ok(stat) = fstatvfs(directory) else {
                files.bytes = None;
                continue;
            };
            let used = (stat.blocks() - stat.blocks_free()) * stat.fragment_size();
            files.bytes = files.bytes.map(|bytes| bytes + used);
            let used_up = match (stat.files_free(), stat.blocks_free()) {
                (0, _) => Some(inodes),
                (_, 0) => Some(size),
                _ => None,
            };
            files.full = files.full.or(used_up);
        }
        files
    }
}
