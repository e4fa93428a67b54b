//! Plans how a worker is restored from an image, and produces the files that the worker receives.

use std::collections::BTreeMap;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat, openat2};
use nix::sys::stat::{Mode, fstat};

use super::descriptors::is_path;
use super::refusal::{Doing, SnapshotRefusal};
use super::regions::{Backing, Region};
use super::steps::{Memory, Plan, hole, in_order, steps};
use super::{Image, ImageKind, Source, Stamp, shown_trees};
use crate::plan::harmless;
use crate::protocol::message::CopyPoint;
use crate::supervisor::files::reopen;
use sandfork_jail::program::WorkerJail;
use sandfork_jail::restore::{BlobData, LARGEST_BLOB, Order, Step};
use sandfork_jail::sys::checkpoint::DATA_AT;
use sandfork_jail::sys::{sealed, write_signals};

impl Image {
    /// Returns the JSON order that the worker executes before its memory is replaced.
    pub fn order(&self, jail: &WorkerJail) -> Result<Vec<u8>, SnapshotRefusal> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let order = Order {
            trees: jail.writable_directories().map(path).collect(),
            images: self.layers.files().len(),
            descriptors: self.lists.descriptors.clone(),
        };
        serde_json::to_vec(&order)
            .map_err(|_| Errno::EINVAL)
            .doing("write the order")
    }

    /// Returns the files that accompany the order: the layers of the memory, then the contents of the directories. They
    /// are reopened for each worker, so that workers do not share file offsets.
    pub fn attachments(&self) -> Result<Vec<OwnedFd>, SnapshotRefusal> {
        let files = self.layers.files().chain([self.trees.as_fd()]);
        let again = |file| reopen(file, OFlag::O_RDONLY).doing("open an image");
        files.map(again).collect()
    }

    /// Plans how a stopped worker is restored from this image. The worker then resumes as if request `number` had been
    /// answered.
    pub fn plan(
        &self,
        target: &Source,
        target_point: &CopyPoint,
        number: u64,
    ) -> Result<(OwnedFd, Vec<Step>), SnapshotRefusal> {
        let regions = target.regions("maps")?;
        let pages = target.pages(&regions)?;
        let no_room = || SnapshotRefusal::Mapping("its mappings leave no room".into());
        let blob = hole(&self.lists.regions, &regions).ok_or_else(no_room)?;
        let mut blob = BlobData::new(blob);
        if target_point.images.len() != self.layers.files().len() {
            let why = "it has not received all memory files".to_owned();
            return Err(SnapshotRefusal::Guest(why));
        }
        let (source_pages, places) = (
            self.layers.pages(),
            self.layers.places(&target_point.images),
        );
        let point = &self.lists.standing;
        let shareable = point.shareable.iter().map(|[start, end]| *start..*end);
        let shareable = in_order(shareable.collect());
        let source = Memory {
            regions: &self.lists.regions,
            pages: &source_pages,
            guards: &self.lists.guards,
            shareable: (self.kind == ImageKind::Copy).then_some(&shareable),
            thread: point.thread,
            is_saved: self.kind == ImageKind::Saved,
        };
        let target_memory = Memory {
            regions: &regions,
            pages: &pages.own,
            guards: &pages.guards,
            shareable: None,
            thread: target_point.thread,
            is_saved: false,
        };
        let plan = steps(
            source,
            places,
            point.program_break,
            target_memory,
            &mut blob,
        )?;
        target.require_same(&plan, &self.lists.files)?;
        let bytes = blob.finish(point.place, number, &plan.steps);
        // The blob's code and buffer precede the data.
        if (DATA_AT + bytes.len()) as u64 > LARGEST_BLOB {
            return Err(SnapshotRefusal::Fragmented(plan.steps.len()));
        }
        let file = sealed::memory_file(c"sandfork-steps").doing("write the steps")?;
        let mut file = std::fs::File::from(file);
        write_signals::as_errors(|| file.write_all(&bytes)).doing("write the steps")?;
        sealed::seal(file.as_fd()).doing("seal the steps")?;
        Ok((file.into(), plan.steps))
    }
}

impl Source<'_> {
    /// Requires that the paths of the plan lead the worker to the same files that the captured worker had mapped,
    /// because a package may have been replaced since. Files in a worker's own directories are excluded: their inodes
    /// differ.
    fn require_same(
        &self,
        plan: &Plan,
        as_before: &BTreeMap<String, Stamp>,
    ) -> Result<(), SnapshotRefusal> {
        let paths = plan.opened.iter().chain(&plan.moved);
        let found = self.stamps(paths.clone().map(String::as_str))?;
        let is_same = |path: &&String| found.get(*path) == as_before.get(*path);
        let is_there = |path: &&String| plan.moved.contains(*path) || found.contains_key(*path);
        let mut others = paths.filter(|path| !self.is_own(path));
        match others.find(|path| !is_same(path) || !is_there(path)) {
            Some(path) => Err(SnapshotRefusal::Other(format!(
                "`{}` was replaced since the snapshot was taken; take another",
                harmless(path)
            ))),
            None => Ok(()),
        }
    }

    /// Returns the stamps of the mapped files outside the worker's own directories, as the worker's paths resolve now.
    /// A file that was mapped before the worker entered its jail may not resolve.
    pub(super) fn mapped_files(
        &self,
        regions: &[Region],
    ) -> Result<BTreeMap<String, Stamp>, SnapshotRefusal> {
        let mapped = regions.iter().filter_map(|region| match &region.backing {
            Backing::File { path, inode, .. } => Some((path.as_str(), *inode)),
            _ => None,
        });
        let mapped: BTreeMap<_, _> = mapped.filter(|(path, _)| !self.is_own(path)).collect();
        let mut found = self.stamps(mapped.keys().copied())?;
        found.retain(|path, stamp| mapped.get(path.as_str()) == Some(&stamp.inode));
        Ok(found)
    }

    /// Requires that a restored worker can open the mapped files that lie in the worker's own directories. Other mapped
    /// files belong to the interpreter: they may have been replaced on the host, but every fork inherits their
    /// mappings.
    pub(super) fn require_paths(&self, regions: &[Region]) -> Result<(), SnapshotRefusal> {
        let mut paths = regions.iter().filter_map(|region| match &region.backing {
            Backing::File { path, .. } => Some(path),
            _ => None,
        });
        let lost = paths.find(|path| self.is_own(path) && !is_path(path));
        lost.map_or(Ok(()), |path| Err(SnapshotRefusal::mapped(path)))
    }

    fn is_own(&self, path: &str) -> bool {
        let beneath = |above: &Path| Path::new(path).starts_with(above);
        self.jail.writable_directories().any(beneath) && !shown_trees(self.jail).any(beneath)
    }

    /// Resolves paths in the worker's root and returns the stamps of those that exist.
    fn stamps<'p>(
        &self,
        paths: impl Iterator<Item = &'p str>,
    ) -> Result<BTreeMap<String, Stamp>, SnapshotRefusal> {
        let root = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root =
            openat(&self.worker.proc.dir, "root", root, Mode::empty()).doing("open its root")?;
        let how = OpenHow::new()
            .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
            .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
        let found = paths.filter_map(|path| {
            let stat = openat2(&root, path, how).and_then(fstat).ok()?;
            Some((path.to_owned(), Stamp::of(&stat)))
        });
        Ok(found.collect())
    }
}
