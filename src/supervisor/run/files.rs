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
    /// The quota that is used up, if one is.
    pub full: Option<LimitName>,
}

impl Files {
    /// Measures a session's directory on the host, whose file system has no quota: a worker over the policy's is killed.
    pub fn of_session(session: &SessionDirectory, quota: FileQuota) -> Self {
        Self {
            bytes: Some(session.count(quota).size.bytes),
            full: None,
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
        Self { bytes, full }
    }
}
