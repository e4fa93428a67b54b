//! Where a session's own files are if there are no mounts.

use serde::Serialize;

use crate::policy::{Level, Policy};

/// Where a session's own files are.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionFiles {
    /// In private tmpfs mounts with quotas.
    Private,
    /// In one host directory per session, which the supervisor creates, measures and removes. In
    /// the plan `/work` stands for it
    /// ([`put_work_in`](sandfork_jail::program::ZygoteJail::put_work_in)).
    HostDirectory(FileQuota),
}

/// The quota of a session's files that the supervisor measures.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct FileQuota {
    /// Size, bytes.
    pub size: u64,
    /// Number of files, directories and links.
    pub inodes: u64,
    /// Size of the largest file, bytes (`RLIMIT_FSIZE`).
    pub largest: u64,
}

impl SessionFiles {
    pub(super) fn of(policy: &Policy, level: Level) -> Self {
        let work = policy.filesystem().work;
        match level {
            Level::Landlock => Self::HostDirectory(FileQuota {
                size: work.size,
                inodes: work.inodes,
                largest: policy.limits().file_size,
            }),
            Level::Standard | Level::Full => Self::Private,
        }
    }

    /// The quota that the supervisor enforces, if no file system does.
    pub fn quota(self) -> Option<FileQuota> {
        match self {
            Self::Private => None,
            Self::HostDirectory(quota) => Some(quota),
        }
    }
}
