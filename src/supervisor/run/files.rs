//! Measures the space that a worker's files occupy at its end.

use std::os::fd::OwnedFd;

use nix::sys::statvfs::fstatvfs;

use crate::outcome::LimitName;
use crate::plan::FileQuota;
use crate::supervisor::session_dir::SessionDirectory;

/// The space that a worker's files occupy, and the exhausted quota.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Files {
    /// The bytes of all files together. `None` if they could not be measured.
    pub bytes: Option<u64>,
    /// The exhausted quota, if there is one.
    pub full: Option<LimitName>,
}

impl Files {
    /// Measures a session's directory on the host. No quota of the file system can be exhausted there: the watchdog
    /// kills a worker that exceeds the policy's quota.
    pub fn of_session(session: &SessionDirectory, quota: FileQuota) -> Self {
        Self {
            bytes: Some(session.count(quota).size.bytes),
            full: None,
        }
    }

    /// Measures private file systems, through the descriptors that the worker passed before it ran guest code: the work
    /// directory, then the directories that share the quota of `/tmp`.
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
