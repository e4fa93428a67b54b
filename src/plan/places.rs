//! The sandbox's own directories, and the paths that a policy names.

use std::path::{Path, PathBuf};

use crate::outcome::LimitName;
use crate::policy::{Located, Policy};

/// Where guest code starts. It is also the guest's home.
pub(super) use sandfork_jail::program::WORK;
/// Temporary files.
pub(super) const TMP: &str = "/tmp";
/// POSIX shared memory and semaphores.
pub(super) const SHM: &str = "/dev/shm";

/// Pseudoterminals.
pub(super) const PTS: &str = "/dev/pts";

/// What the kernel says of the machine.
pub(super) const SYS: &str = "/sys";

/// Directories that every sandbox fills itself. They show nothing of the host.
const OWN_TREES: [&str; 3] = ["/dev", "/proc", SYS];

/// Directories that are private to the session and may contain views of the host.
pub(super) const SESSIONS: [&str; 2] = [WORK, TMP];

/// The sandbox's own `/etc`, in which host files may appear beside its own files.
pub(super) const ETC: &str = "/etc";

/// The quota that counts a file at this path.
pub fn quota_of(path: &Path) -> Option<LimitName> {
    let of_tmp = [TMP, SHM, super::root::VAR_TMP];
    if path.starts_with(WORK) {
        Some(LimitName::WorkSize)
    } else {
        let is_in = of_tmp.iter().any(|directory| path.starts_with(directory));
        is_in.then_some(LimitName::TmpSize)
    }
}

/// The sandbox's own directory that would hide `path`, or be hidden by it.
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

/// What a policy names a path for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Use {
    /// To import from it.
    ImportFrom,
    /// To run a program of several files in it.
    Project,
    /// To read it.
    Read,
    /// To write to it.
    Write,
}

impl Use {
    /// The dotted key.
    pub(super) fn key(self) -> &'static str {
        match self {
            Self::ImportFrom => "python.path",
            Self::Project => "python.project",
            Self::Read => "filesystem.read",
            Self::Write => "filesystem.write",
        }
    }
}

/// Every path that the policy names.
pub(super) fn named_by(policy: &Policy) -> impl Iterator<Item = (Use, &Located<PathBuf>)> {
    let files = &policy.filesystem;
    let imports = policy
        .python
        .path
        .iter()
        .map(|path| (Use::ImportFrom, path));
    let project = policy.python.project.iter();
    let imports = imports.chain(project.map(|path| (Use::Project, path)));
    let reads = files.read.iter().map(|path| (Use::Read, path));
    let writes = files.write.iter().map(|path| (Use::Write, path));
    imports.chain(reads).chain(writes)
}
