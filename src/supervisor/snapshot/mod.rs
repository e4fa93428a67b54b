//! Live snapshots: captures the state of a session's worker as an [`Image`], and restores other workers from it.
//!
//! A worker that waits at a cell boundary is copied from outside: its memory into one file, the contents of its
//! directories into another, its descriptors as a list. The worker that becomes the copy starts like any other: the
//! same zygote forks it, it enters its jail, and the supervisor verifies it before it sends anything. That worker then
//! restores files and descriptors with a guest's rights, and replaces its own memory by the steps that [`steps`]
//! computes. No byte of a guest is interpreted outside a jail: the supervisor reads only what the kernel reports about
//! a worker.
//!
//! [`regions`], [`descriptors`] and [`steps`] are pure.

mod capture;
mod descriptors;
mod layers;
mod medium;
mod memory;
mod pack;
mod refusal;
mod regions;
mod restore;
mod saved;
mod shelf;
mod steps;

use std::collections::BTreeMap;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

/// The parsers of the kernel's reports about a guest, and the planner of steps. For tests, benchmarks and fuzz targets.
#[cfg(feature = "internals")]
pub mod readers {
    pub use super::descriptors::{Found, Kind, Outputs, keep};
    pub use super::layers::{Piece, Places};
    pub use super::regions::{Backing, MAX_REGIONS, Region, parse};
    pub use super::steps::{Memory, hole, in_order, split, steps};
}

pub use self::capture::{Source, require_alone};
pub use self::layers::Base;
pub use self::medium::Medium;
pub use self::refusal::SnapshotRefusal;
pub use self::saved::MadeBy;
pub use self::shelf::Shelf;

use nix::sys::stat::FileStat;
use serde::{Deserialize, Serialize};

use self::layers::Layers;
use self::regions::Region;
use super::zygote::Zygote;
use crate::host::{Tracing, tracing};
use crate::policy::Level;
use crate::protocol::message::CopyPoint;
use sandfork_jail::program::{Shown, WorkerJail};
use sandfork_jail::restore::Descriptor;
use sandfork_jail::sys;

/// Checks that this host can snapshot sessions of this level.
///
/// # Errors
/// The missing requirement.
pub fn are_possible(level: Level) -> Result<(), SnapshotRefusal> {
    if level < Level::Standard {
        return Err(SnapshotRefusal::Level);
    }
    require_access()?;
    memory::is_listed()
}

/// Requires that this build and this host allow a supervisor to read and write a worker's memory.
fn require_access() -> Result<(), SnapshotRefusal> {
    if !sys::checkpoint::IS_SUPPORTED {
        return Err(SnapshotRefusal::Other(format!(
            "this build is for {}; snapshots exist for x86-64",
            std::env::consts::ARCH
        )));
    }
    match tracing() {
        Tracing::Forbidden => Err(SnapshotRefusal::Other(
            "the host lets no process trace another (kernel.yama.ptrace_scope=3, until it boots with a lower value)"
                .to_owned(),
        )),
        Tracing::Allowed | Tracing::Privileged => Ok(()),
    }
}

/// Returns the paths inside a worker's writable directories at which the host's trees and files are mounted. Their
/// contents belong to the host and are not copied.
fn shown_trees(jail: &WorkerJail) -> impl Iterator<Item = &Path> {
    let shown = jail.tmpfs.iter().flat_map(|tmpfs| &tmpfs.shows);
    shown.filter_map(|shown| match shown {
        Shown::Tree { target, .. } => Some(target.as_path()),
        Shown::Symlink { .. } => None,
    })
}

/// The identity of a file's contents: a different stamp means that the file was replaced or modified.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    size: i64,
    /// Seconds and nanoseconds since the epoch.
    modified: (i64, i64),
}

impl Stamp {
    fn of(stat: &FileStat) -> Self {
        Self {
            inode: stat.st_ino,
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
        }
    }
}

/// The purpose of an image.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ImageKind {
    /// Forks of a live session, which reseed their random number generators. In memory.
    Copy,
    /// The one session that is paused, which resumes with its own random state. On disk.
    Pause,
    /// Forks of a session that was saved to a file, possibly by another supervisor. On disk.
    Saved,
}

/// What the supervisor knows about a copied worker, besides the contents of its memory and files.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Lists {
    regions: Vec<Region>,
    /// Guard pages (`MADV_GUARD_INSTALL`), in order of address.
    guards: Vec<Range<u64>>,
    /// What the worker reported about its copy point. Untrusted: a wrong value breaks only the copies of this worker.
    standing: CopyPoint,
    descriptors: Vec<Descriptor>,
    /// Stamps of the mapped files at the time of the copy, by path.
    files: BTreeMap<String, Stamp>,
    /// The number of cells that the session has run.
    cells: u64,
}

/// The captured state of a session's worker.
#[derive(Debug)]
pub struct Image {
    /// The zygote whose workers can be restored from the image. They have the captured worker's address layout, unless
    /// the image, or one from which its session was restored, was saved under another zygote.
    pub zygote: Arc<Zygote>,
    kind: ImageKind,
    /// The contents of the memory.
    layers: Layers,
    /// The contents of the worker's directories, read-only.
    trees: OwnedFd,
    lists: Lists,
    /// The bytes of `trees`.
    bytes_of_trees: u64,
    /// The path of a file in `trees` that its owner may not read, if there is one.
    unreadable: Option<String>,
}

impl Image {
    /// Returns the number of cells that the session had run.
    pub fn cells(&self) -> u64 {
        self.lists.cells
    }

    /// Whether the image holds a paused session, which is resumed once, rather than the origin of forks.
    pub fn is_paused(&self) -> bool {
        self.kind == ImageKind::Pause
    }

    /// Returns the layers that a later image may share.
    pub fn base(&self) -> Option<Base<'_>> {
        let base = self.layers.base();
        base.filter(|_| self.kind == ImageKind::Copy)
    }

    /// Returns the bytes that this image adds to the layers it shares with earlier images.
    pub fn bytes(&self) -> u64 {
        self.layers.own() + self.bytes_of_trees
    }

    /// Returns the bytes that the images and the base of a further image take together. Shared layers count once.
    fn bytes_of<'a>(images: impl Iterator<Item = &'a Self>, base: Option<Base<'_>>) -> u64 {
        let (mut layers, mut trees) = (BTreeMap::new(), 0);
        if let Some(base) = base {
            base.list(&mut layers);
        }
        for image in images {
            image.layers.list(&mut layers);
            trees += image.bytes_of_trees;
        }
        layers.values().sum::<u64>() + trees
    }

    /// Returns the memory that a worker restored from the image needs, in bytes.
    fn whole(&self) -> u64 {
        self.layers.length() + self.bytes_of_trees
    }
}
