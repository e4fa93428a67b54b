//! Live snapshots: the state of a session's worker as an image, from which other workers take it on.
//!
//! A worker that stands at a cell boundary is copied from outside: its memory into a file, its directories
//! into another, its descriptors as a list. A copy begins as any worker does: forked by the same zygote, jailed,
//! checked from outside, before it gets anything. It then restores the files and descriptors with a guest's rights,
//! and replaces its own memory by steps that are made here. No byte of a guest is interpreted outside a jail: what
//! is read of a worker is what the kernel says of it.
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

/// What reads what the kernel says of a guest, and makes steps of it.
#[cfg(feature = "internals")]
pub mod readers {
    pub use super::descriptors::{Found, Kind, Outputs, keep};
    pub use super::layers::{Piece, Places};
    pub use super::regions::{Backing, MOST_REGIONS, Region, parse};
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

/// Whether sessions of this level can be copied on this host, as far as the host decides it.
///
/// # Errors
/// If they cannot, with what is missing.
pub fn are_possible(level: Level) -> Result<(), SnapshotRefusal> {
    if level < Level::Standard {
        return Err(SnapshotRefusal::Level);
    }
    require_access()?;
    memory::is_listed()
}

/// Requires that this build and this host let a supervisor read and write a worker's state.
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

/// The host's trees and files that a worker's own directories show. They are mounted there, and are the host's.
fn shown_trees(jail: &WorkerJail) -> impl Iterator<Item = &Path> {
    let shown = jail.tmpfs.iter().flat_map(|tmpfs| &tmpfs.shows);
    shown.filter_map(|shown| match shown {
        Shown::Tree { target, .. } => Some(target.as_path()),
        Shown::Symlink { .. } => None,
    })
}

/// By what a file is known to be the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
struct Stamp {
    inode: u64,
    size: i64,
    /// Seconds and nanoseconds.
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

/// What an image is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum ImageKind {
    /// Copies of a worker, which get random numbers of their own. It is in memory.
    Copy,
    /// The one session that is paused, which goes on with its own. It is on a disk.
    Pause,
    /// Copies again, with what a file had that another supervisor may have saved. It is on a disk.
    Saved,
}

/// What the supervisor knows of a worker that was copied, besides the bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Lists {
    regions: Vec<Region>,
    /// The pages that it may not touch, in order.
    guards: Vec<Range<u64>>,
    /// What it said of itself. It is hostile: what is wrong breaks its copies, and nothing else.
    standing: CopyPoint,
    descriptors: Vec<Descriptor>,
    /// The files that are mapped, by path, as they were.
    files: BTreeMap<String, Stamp>,
    /// How many cells the session has run.
    cells: u64,
}

/// The state of a session's worker.
#[derive(Debug)]
pub struct Image {
    /// Its workers take on the state. Those that it forked for the session have the same addresses.
    pub zygote: Arc<Zygote>,
    kind: ImageKind,
    /// The pages.
    layers: Layers,
    /// The contents of the worker's directories, read-only.
    trees: OwnedFd,
    lists: Lists,
    /// The bytes of its files.
    bytes_of_trees: u64,
    /// A file among them that its owner may not read.
    unreadable: Option<String>,
}

impl Image {
    /// How many cells the session had run.
    pub fn cells(&self) -> u64 {
        self.lists.cells
    }

    /// Whether it keeps a session that is paused, which goes on once, and not copies of one.
    pub fn is_paused(&self) -> bool {
        self.kind == ImageKind::Pause
    }

    /// What of its memory another image may have beneath its own.
    pub fn base(&self) -> Option<Base<'_>> {
        let base = self.layers.base();
        base.filter(|_| self.kind == ImageKind::Copy)
    }

    /// The memory that the image takes besides those that are beneath it, bytes.
    pub fn bytes(&self) -> u64 {
        self.layers.own() + self.bytes_of_trees
    }

    /// The memory that images take together with the base of another one, bytes.
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

    /// The memory that a worker needs for it, bytes.
    fn whole(&self) -> u64 {
        self.layers.length() + self.bytes_of_trees
    }
}
