//! The sandbox's own directories, and the paths in a policy.

use std::path::{Path, PathBuf};

use crate::outcome::LimitName;
use crate::policy::{Located, Policy};

/// The current directory of guest code, and the guest's home.
pub(super) use sandfork_jail::program::WORK;
/// The directory for temporary files.
pub(super) const TMP: &str = "/tmp";
/// The directory of POSIX shared memory and semaphores.
pub(super) const SHM: &str = "/dev/shm";

/// The directory of pseudoterminals.
pub(super) const PTS: &str = "/dev/pts";

/// The directory in which the kernel describes the machine.
pub(super) const SYS: &str = "/sys";

/// Directories whose contents the sandbox creates. They show nothing of the host.
const OWN_TREES: [&str; 3] = ["/dev", "/proc", SYS];

/// Directories that are private to the session, in which host paths may be shown.
pub(super) const SESSIONS: [&str; 2] = [WORK, TMP];

/// The sandbox's own `/etc`, in which host files may be shown beside its own files.
pub(super) const ETC: &str = "/etc";

/// Returns the quota that counts a file at this path.
pub fn quota_of(path: &Path) -> Option<LimitName> {
    let of_tmp = [TMP, SHM, super::root::VAR_TMP];
    if path.starts_with(WORK) {
        Some(LimitName::WorkSize)
    } else {
        let is_in = of_tmp.iter().any(|directory| path.starts_with(directory));
        is_in.then_some(LimitName::TmpSize)
    }
}

/// Returns the sandbox's own directory or file that would hide `path`, or be hidden by it.
pub(super) fn clash(path: &Path) -> Option<&'static str> {
    let own_tree = OWN_TREES.into_iter().find(|own| path.starts_with(own));
    let whole = || {
        let shared = [ETC, "/"].into_iter().chain(SESSIONS);
        shared.into_iter().find(|own| path == Path::new(own))
    };
    let synthetic = || {
        let files = super::root::ETC_FILES.iter().map(|(name, _)| *name);
        let mut files = files.chain([super::network::NAME_SERVICE]);
        files.find(|own| path == Path::new(own))
    };
    own_tree.or_else(whole).or_else(synthetic)
}

/// The purpose of a path in a policy.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Purpose {
    /// To import modules from the path.
    ImportFrom,
    /// To run the program of several files at the path.
    Project,
    /// To read the path.
    Read,
    /// To write to the path.
    Write,
}

impl Purpose {
    /// Returns the dotted key.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::ImportFrom => "python.path",
            Self::Project => "python.project",
            Self::Read => "filesystem.read",
            Self::Write => "filesystem.write",
        }
    }
}

/// Returns every path in the policy, with its purpose.
pub(super) fn named_by(policy: &Policy) -> impl Iterator<Item = (Purpose, &Located<PathBuf>)> {
    let files = &policy.filesystem;
    let imports = policy
        .python
        .path
        .iter()
        .map(|path| (Purpose::ImportFrom, path));
    let project = policy.python.project.iter();
    let imports = imports.chain(project.map(|path| (Purpose::Project, path)));
    let reads = files.read.iter().map(|path| (Purpose::Read, path));
    let writes = files.write.iter().map(|path| (Purpose::Write, path));
    imports.chain(reads).chain(writes)
}
