//! What a worker's private file systems hold at its end.

use std::os::fd::OwnedFd;

use nix::sys::statvfs::fstatvfs;

use crate::outcome::LimitName;

/// Measured through the descriptors that the worker handed over before it ran guest code.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Files {
    /// Bytes that they hold together; none where they are no file systems of their own.
    pub bytes: Option<u64>,
    /// The quota that is used up, if one is.
    pub full: Option<LimitName>,
}

impl Files {
    /// Measures the directories: the work directory, then those that share the quota of `/tmp`.
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
