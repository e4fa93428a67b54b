//! Where a session's own files are if there are no mounts.

use serde::Serialize;

use crate::policy::{Level, Limits, Policy};

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

impl FileQuota {
    /// The quota of these limits.
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
