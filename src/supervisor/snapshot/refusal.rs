//! Why a session's state cannot be copied.

use std::io;

use nix::errno::Errno;

use crate::host::{has_run_out, with_hint};
use crate::plan::{bytes, harmless};
use sandfork_jail::sys::errno_of;

/// Why there is no snapshot, as the rest of a sentence. The session lives on. A guest chooses names and paths in it, and
/// callers show it as it is.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SnapshotRefusal {
    /// The level has no namespaces, so that addresses, numbers and files are not a worker's own.
    #[error("the sandbox is of level `landlock`; a snapshot needs level `standard`")]
    Level,
    /// The kernel.
    #[error("the kernel cannot list changed pages (PAGEMAP_SCAN); Linux 6.7 or later can")]
    Kernel,
    /// A file of the session is not readable. Holds its path.
    #[error("`{}` cannot be read by its owner; give it another mode first (chmod)", harmless(.0))]
    Unreadable(String),
    /// A snapshot cannot be saved as a file, or a file has none with which a session can begin here.
    #[error("{why}")]
    Saved {
        /// Why, with the path, as the rest of a sentence.
        why: String,
        /// The kernel's error, if that is why.
        errno: Option<Errno>,
    },
    /// A mapping cannot be made again. Holds what is mapped.
    #[error("{}; remove the mapping first", harmless(.0))]
    Mapping(String),
    /// There are more mappings than so many.
    #[error("the session has more than {0} mappings or pieces of memory")]
    Fragmented(usize),
    /// The disk would have too little room left.
    #[error(
        "it takes {}, and the paused sessions of this {} have {} of the {} that they may have on the disk; end some of them, or \
         make room on the disk",
        bytes(*.wanted), .whose, bytes(*.taken), bytes(*.most)
    )]
    Disk {
        /// Whose sessions those are: of one `sandbox`, where there are others, or of the `process`.
        whose: &'static str,
        /// The bytes of the image.
        wanted: u64,
        /// The bytes of others.
        taken: u64,
        /// The most bytes of all.
        most: u64,
    },
    /// There is no disk. Holds where one was looked for.
    #[error("a file without a name can be made on a disk in none of {0}")]
    NoDisk(String),
    /// The supervisor would have too few descriptors left.
    #[error(
        "the supervisor has no descriptors left; raise `ulimit -n`, or close other snapshots or sessions first"
    )]
    HostDescriptors,
    /// The guest's side has refused it.
    #[error("the session did not stand still: {}", harmless(.0))]
    Guest(String),
    /// What no caller tells from others. Holds why, as the rest of a sentence.
    #[error("{0}")]
    Other(String),
    /// The worker changed while it was copied.
    #[error("the session changed while it was copied; try again")]
    Changed,
    /// A system call failed.
    #[error("could not {what}: {}", with_hint(*.errno))]
    System {
        /// What failed.
        what: &'static str,
        /// Its error.
        errno: Errno,
    },
}

/// What a session has no thread of this name with, for threads that libraries start.
fn remedy(name: &str) -> &'static str {
    match name {
        _ if name.starts_with("jemalloc_bg_") => {
            "for pyarrow, which pandas and others import, set JE_ARROW_MALLOC_CONF=background_thread:false under \
             `env.set` in the policy"
        }
        _ if name.starts_with("polars-") => "polars keeps its own until the session ends",
        _ => {
            "for OpenBLAS and OpenMP, set OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 under `env.set` in the policy"
        }
    }
}

impl SnapshotRefusal {
    /// Whether it fits when other sessions end.
    pub const fn is_for_now(&self) -> bool {
        matches!(self, Self::Disk { wanted, most, .. } if *wanted <= *most)
    }

    /// Whether the host has run out of something, which neither the session nor the request is at fault for.
    pub fn is_of_host(&self) -> bool {
        match self {
            Self::HostDescriptors => true,
            Self::System { errno, .. }
            | Self::Saved {
                errno: Some(errno), ..
            } => {
                let is_disk_full = [Errno::ENOSPC, Errno::EDQUOT].contains(errno);
                is_disk_full || has_run_out(&(*errno).into())
            }
            _ => false,
        }
    }

    /// The session has so many threads, one of which has this name and is not the main one.
    pub(super) fn threads(count: usize, name: &str) -> Self {
        Self::Other(format!(
            "the session has {count} threads, among them `{}`; end them first ({})",
            harmless(name),
            remedy(name)
        ))
    }

    /// For a mapping of a file that no path leads to.
    pub(super) fn mapped(path: &str) -> Self {
        Self::Mapping(format!("`{path}` is mapped, and cannot be opened again"))
    }
}

/// Adds what failed to an error of the kernel.
pub trait Doing<T> {
    /// The refusal for it.
    fn doing(self, what: &'static str) -> Result<T, SnapshotRefusal>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &'static str) -> Result<T, SnapshotRefusal> {
        self.map_err(|error| match errno_of(error) {
            // The worker is gone, which is reported in its own way.
            Errno::ESRCH => SnapshotRefusal::Changed,
            errno => SnapshotRefusal::System { what, errno },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_a_library_has_its_own_remedy() {
        for (name, remedy) in [
            (
                "jemalloc_bg_thd",
                "JE_ARROW_MALLOC_CONF=background_thread:false",
            ),
            ("polars-ooc-clea", "polars keeps its own"),
            ("python3", "OPENBLAS_NUM_THREADS=1"),
        ] {
            let said = SnapshotRefusal::threads(2, name).to_string();
            assert!(said.contains(remedy), "{said}");
        }
    }
}
