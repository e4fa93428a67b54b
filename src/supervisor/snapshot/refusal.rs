//! The reasons for which a session's state cannot be captured, saved or restored.

use std::io;

use nix::errno::Errno;

use crate::host::{has_run_out, with_hint};
use crate::plan::{bytes, harmless};
use sandfork_jail::sys::errno_of;

/// Why a snapshot fails, as the rest of a sentence that callers print unchanged. The session continues. Guest-chosen
/// names and paths are escaped.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SnapshotRefusal {
    /// The level has no namespaces, so that addresses, pids and files are not private to a worker.
    #[error("the sandbox is of level `landlock`; a snapshot needs level `standard`")]
    Level,
    /// The kernel lacks `PAGEMAP_SCAN`.
    #[error("the kernel cannot list changed pages (PAGEMAP_SCAN); Linux 6.7 or later can")]
    Kernel,
    /// A file of the session cannot be read. Holds its path.
    #[error("`{}` cannot be read by its owner; change its mode first (chmod)", harmless(.0))]
    Unreadable(String),
    /// A snapshot cannot be saved to a file, or a file cannot be resumed here.
    #[error("{why}")]
    Saved {
        /// The reason with the path, as the rest of a sentence.
        why: String,
        /// The errno, if a system call failed.
        errno: Option<Errno>,
    },
    /// A mapping cannot be recreated. Holds a description of the mapping.
    #[error("{}; remove the mapping first", harmless(.0))]
    Mapping(String),
    /// There are more than this number of mappings or page ranges.
    #[error("the session has more than {0} mappings or pieces of memory")]
    Fragmented(usize),
    /// Too little disk space would remain.
    #[error(
        "it takes {}, and the paused sessions of this {} have {} of the {} that they may have on the disk; end some of them, or \
         make room on the disk",
        bytes(*.wanted), .whose, bytes(*.taken), bytes(*.most)
    )]
    Disk {
        /// Whose images count: those of one `sandbox`, if the process has several, or of the whole `process`.
        whose: &'static str,
        /// The bytes of this image.
        wanted: u64,
        /// The bytes of other images.
        taken: u64,
        /// The maximum of all images together, in bytes.
        most: u64,
    },
    /// No usable disk was found. Holds the directories that were tried.
    #[error("found no disk for an unnamed file (O_TMPFILE) at {0}")]
    NoDisk(String),
    /// Too few descriptors would remain for the supervisor.
    #[error(
        "the supervisor has no descriptors left; raise `ulimit -n`, or close other snapshots or sessions first"
    )]
    HostDescriptors,
    /// The worker refused or broke the exchange. Holds its message or the violation.
    #[error("the session did not stop for the copy: {}", harmless(.0))]
    Guest(String),
    /// Any other reason, which no caller needs to match. Holds the rest of a sentence.
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

/// Returns how to prevent a thread of this name, for threads that libraries start.
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
    /// Whether the image would fit once other sessions end.
    pub const fn is_for_now(&self) -> bool {
        matches!(self, Self::Disk { wanted, most, .. } if *wanted <= *most)
    }

    /// Whether the host has run out of a resource, through no fault of the session or the request.
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

    /// Builds the refusal for a session with `count` threads. `name` is that of a thread besides the main one.
    pub(super) fn threads(count: usize, name: &str) -> Self {
        Self::Other(format!(
            "the session has {count} threads, among them `{}`; end them first ({})",
            harmless(name),
            remedy(name)
        ))
    }

    /// Builds the refusal for a mapping of a file whose path does not lead to it.
    pub(super) fn mapped(path: &str) -> Self {
        Self::Mapping(format!("`{path}` is mapped, and cannot be opened again"))
    }
}

/// Adds the failed operation to a system call's error.
pub trait Doing<T> {
    /// Maps the error to a refusal that names the operation.
    fn doing(self, what: &'static str) -> Result<T, SnapshotRefusal>;
}

impl<T, E: Into<io::Error>> Doing<T> for Result<T, E> {
    fn doing(self, what: &'static str) -> Result<T, SnapshotRefusal> {
        self.map_err(|error| match errno_of(error) {
            // The worker has exited, which is reported separately.
            Errno::ESRCH => SnapshotRefusal::Changed,
            errno => SnapshotRefusal::System { what, errno },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn library_threads_have_specific_remedies() {
        for (name, remedy) in [
            (
                "jemalloc_bg_thd",
                "JE_ARROW_MALLOC_CONF=background_thread:false",
            ),
            ("polars-ooc-clea", "polars keeps its own"),
            ("python3", "OPENBLAS_NUM_THREADS=1"),
        ] {
            let message = SnapshotRefusal::threads(2, name).to_string();
            assert!(message.contains(remedy), "{message}");
        }
    }
}
