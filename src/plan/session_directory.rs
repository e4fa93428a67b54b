//! Where a session's own files are when there are no mounts.

use serde::Serialize;

use crate::policy::{Level, Policy};

/// Where a session's own files are.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionFiles {
    /// In private tmpfs mounts with quotas.
    Private,
    /// In one directory of the host for each session, which the supervisor makes, measures and
    /// removes. In the plan `/work` stands for it
    /// ([`put_work_in`](crate::jail::program::ZygoteJail::put_work_in)).
    HostDirectory(FileQuota),
}

/// What the files of a session may take, where the supervisor measures them.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct FileQuota {
    /// Bytes.
    pub size: u64,
    /// Files, directories, links.
    pub inodes: u64,
    /// The largest that one file may be, bytes (`RLIMIT_FSIZE`).
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

    /// What the supervisor holds a session to, where no file system does.
    pub fn quota(self) -> Option<FileQuota> {
        match self {
            Self::Private => None,
            Self::HostDirectory(quota) => Some(quota),
        }
    }
}
