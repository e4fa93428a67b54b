//! The location and quota of a session's own files.

use serde::Serialize;

use crate::policy::{Level, Limits, Policy};

/// The location of a session's own files.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionFiles {
    /// In private tmpfs mounts with quotas.
    Private,
    /// In one host directory per session, which the supervisor creates, measures and removes. In the plan,
    /// `/work` is a placeholder for its path
    /// ([`put_work_in`](sandfork_jail::program::ZygoteJail::put_work_in)).
    HostDirectory(FileQuota),
}

/// The quota of a session's files that the supervisor measures.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct FileQuota {
    /// The total size, bytes.
    pub size: u64,
    /// The number of files, directories and links.
    pub inodes: u64,
    /// The size of the largest file, bytes (`RLIMIT_FSIZE`).
    pub largest: u64,
}

impl FileQuota {
    /// Returns the quota of these limits.
    pub fn new(limits: &Limits) -> Self {
        Self {
            size: limits.work_size(),
            inodes: limits.work_inodes(),
            largest: limits.file_size(),
        }
    }
}

impl SessionFiles {
    pub(super) fn of(policy: &Policy, level: Level) -> Self {
        match level {
            Level::Landlock => Self::HostDirectory(FileQuota::new(&policy.limits)),
            Level::Standard | Level::Full => Self::Private,
        }
    }
}
