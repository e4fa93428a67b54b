//! The cgroup of one worker, and after it perhaps of another.

use std::cell::{Ref, RefCell};
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::counts::MOST_CHARGED;
use super::open_files::OpenFiles;
use super::{CgroupRoot, Counts, files, refused, remove_tree};
use crate::host::Controller;
use crate::plan::{CgroupVersion, Hierarchy};
use crate::supervisor::error::SupervisorError;

/// The cgroup of one worker. When dropped it is kept for another one if it is as good as new, and
/// removed otherwise, with whatever is still in it.
#[derive(Debug)]
pub struct WorkerCgroup {
    root: Arc<CgroupRoot>,
    made: Made,
}

/// A directory in each hierarchy, with the limits in it.
#[derive(Debug, Default)]
pub struct Made {
    dirs: Vec<PathBuf>,
    join: RefCell<Vec<OwnedFd>>,
    open: OpenFiles,
    /// What it had counted when its worker came.
    before: Counts,
}

impl Made {
    pub(super) fn add(&mut self, dir: PathBuf) {
        self.dirs.push(dir);
    }
}

/// Also what was only half made.
impl Drop for Made {
    fn drop(&mut self) {
        self.dirs.iter().for_each(|dir| remove_tree(dir));
    }
}

impl WorkerCgroup {
    pub(super) fn new(root: Arc<CgroupRoot>, made: Made) -> Self {
        Self { root, made }
    }

    /// Open files through which a process joins, one for each hierarchy.
    pub fn join_files(&self) -> Result<Ref<'_, [OwnedFd]>, SupervisorError> {
        let name = files::join_file(self.root.plan.version);
        let open = |dir: &PathBuf| {
            let path = dir.join(name);
            let file = OpenOptions::new().write(true).open(&path);
            file.map(OwnedFd::from).map_err(refused("open", &path))
        };
        if self.made.join.borrow().is_empty() {
            let opened: Result<_, _> = self.made.dirs.iter().map(open).collect();
            *self.made.join.borrow_mut() = opened?;
        }
        Ok(Ref::map(self.made.join.borrow(), Vec::as_slice))
    }

    /// Its worker stays: the files through which the next one would join need not be open.
    pub fn settle(&self) {
        self.made.join.borrow_mut().clear();
    }

    /// What has been counted so far, since its worker came.
    pub fn counts(&self) -> Counts {
        self.counted().since(&self.made.before)
    }

    fn counted(&self) -> Counts {
        self.places()
            .fold(Counts::default(), |counts, (hierarchy, dir)| {
                let mut read = |file| self.made.open.read(dir, file);
                files::read_counts(self.root.plan.version, hierarchy, &mut read, counts)
            })
    }

    /// Whether it holds everything that a cgroup can limit: a host may have been booted, or
    /// delegated, without a controller.
    pub fn is_complete(&self) -> bool {
        let mut limiting = Controller::LIMITING.into_iter();
        limiting.all(|controller| self.root.plan.limits_by(controller))
    }

    /// Whether it counts processor time.
    pub fn counts_cpu(&self) -> bool {
        let counts = |hierarchy: &Hierarchy| files::counts_cpu(self.root.plan.version, hierarchy);
        self.root.plan.hierarchies.iter().any(counts)
    }

    /// Processor time so far, since its worker came, microseconds.
    pub fn cpu_us(&self) -> Option<u64> {
        let counted = self.places().find_map(|(hierarchy, dir)| {
            let mut read = |file| self.made.open.read(dir, file);
            files::cpu_us(self.root.plan.version, hierarchy, &mut read)
        })?;
        Some(counted.saturating_sub(self.made.before.cpu_us.unwrap_or(0)))
    }

    /// Where a process that joined must be: a controller of each hierarchy (none on version 2),
    /// and the directory.
    pub fn membership(&self) -> impl Iterator<Item = (Option<Controller>, &Path)> {
        self.places()
            .map(|(hierarchy, dir)| match self.root.plan.version {
                CgroupVersion::V1 => (hierarchy.controllers.first().copied(), dir),
                CgroupVersion::V2 { .. } => (None, dir),
            })
    }

    fn places(&self) -> impl Iterator<Item = (&Hierarchy, &Path)> {
        self.root
            .plan
            .hierarchies
            .iter()
            .zip(self.made.dirs.iter().map(PathBuf::as_path))
    }

    /// Makes it as good as new. `None` where it cannot be.
    fn renew(&mut self) -> Option<()> {
        let counted = self.counted();
        if !counted.since(&self.made.before).left_nothing() {
            return None;
        }
        let mut empty = false;
        for (hierarchy, dir) in self.places() {
            let read = |file| self.made.open.read(dir, file)?.trim().parse::<u64>().ok();
            if hierarchy.controllers.contains(&Controller::Pids) {
                // Tasks are counted until they have been reaped, and a worker's are in all of its
                // hierarchies: where there are none here, there are none.
                empty = read("pids.current")? == 0;
            }
            if hierarchy.controllers.contains(&Controller::Memory) {
                let (charged, peak) = match self.root.plan.version {
                    CgroupVersion::V1 => ("memory.usage_in_bytes", "memory.max_usage_in_bytes"),
                    CgroupVersion::V2 { .. } => ("memory.current", "memory.peak"),
                };
                if read(charged)? > MOST_CHARGED {
                    return None;
                }
                self.made.open.reset(dir, peak).ok()?;
            }
        }
        self.made.before = counted;
        empty.then_some(())
    }
}

impl Drop for WorkerCgroup {
    fn drop(&mut self) {
        if self.renew().is_some() {
            let made = std::mem::take(&mut self.made);
            // What is too many is removed here, out of the lock.
            drop(self.root.keep(made));
        }
    }
}
