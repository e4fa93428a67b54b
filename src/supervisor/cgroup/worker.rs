//! The cgroup of one worker, which another worker may use later.

use std::cell::{Cell, Ref, RefCell};
use std::fs::OpenOptions;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::counts::MAX_CHARGED;
use super::open_files::OpenFiles;
use super::{CgroupRoot, Counts, files, leftovers, refused, remove_tree};
use crate::host::Controller;
use crate::plan::{CgroupPlan, CgroupVersion, Hierarchy, Layer, Presence, Setting};
use crate::supervisor::error::SupervisorError;

/// The cgroup of one worker. When dropped, it is kept for another worker if it is indistinguishable from a new one.
/// Otherwise it is removed, and processes that are still in it are killed.
#[derive(Debug)]
pub struct WorkerCgroup {
    pub(super) root: Arc<CgroupRoot>,
    pub(super) made: Made,
    /// The counts of the last reading. Counts only grow.
    pub(super) seen: Cell<Option<Counts>>,
    /// Whether a limit was found changed. Such a cgroup is not used again.
    pub(super) is_changed: Cell<bool>,
    /// The counts after the end of the worker, if they were read.
    pub(super) last: Cell<Option<Counts>>,
}

/// A directory in each hierarchy, with its limits set.
#[derive(Debug, Default)]
pub struct Made {
    pub(super) dirs: Vec<PathBuf>,
    join: RefCell<Vec<OwnedFd>>,
    /// The files of the limits, which the supervisor reads back for each worker.
    limits: OpenFiles,
    /// The files of the counters.
    open: OpenFiles,
    /// The counts when the current worker joined.
    before: Counts,
}

impl Made {
    /// Opens the counter files while a failure can still be reported. If the supervisor ran out of descriptors during
    /// the run, it could not report which limit the run reached.
    pub(super) fn open_counters(&self, plan: &CgroupPlan) -> Result<(), SupervisorError> {
        for (hierarchy, dir) in plan.hierarchies.iter().zip(&self.dirs) {
            for name in files::counters(plan.version, hierarchy) {
                let opened = self.open.open(dir, name);
                opened.map_err(|error| refused("open", &dir.join(name))(error))?;
            }
        }
        Ok(())
    }
}

/// Also removes a cgroup whose creation failed halfway.
impl Drop for Made {
    fn drop(&mut self) {
        self.dirs.iter().for_each(|dir| remove_tree(dir));
    }
}

impl WorkerCgroup {
    /// Returns open files through which a process joins, one for each hierarchy.
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

    /// Closes the files for joining and those of the limits, once the worker has been verified.
    pub fn settle(&self) {
        self.made.join.borrow_mut().clear();
        self.made.limits.close();
    }

    /// Reads the limits of the policy back for each worker, because they were written when the cgroup was created,
    /// possibly many workers ago. Fails with the first limit whose value is not the written one.
    pub fn check_limits(&self) -> Result<(), SupervisorError> {
        for (hierarchy, dir) in self.places() {
            let is_limit = |setting: &&Setting| setting.presence == Presence::Required;
            for Setting { file, value, .. } in hierarchy.settings.iter().filter(is_limit) {
                let found = self.made.limits.read(dir, file);
                let found = found.map_err(|error| refused("read", &dir.join(file))(error))?;
                if !files::holds(file, &found, value) {
                    self.is_changed.set(true);
                    return Err(SupervisorError::NotEnforced {
                        layer: Layer::Cgroup,
                        found: format!("{file} {}", found.trim()),
                        wanted: value.clone(),
                    });
                }
            }
        }
        Ok(())
    }

    /// Returns the counts since the worker joined.
    pub fn counts(&self) -> Counts {
        let counts = self.counted().since(&self.made.before);
        self.seen.set(Some(counts));
        counts
    }

    /// Like [`counts`](Self::counts), once no process of the worker is left. The reading is final.
    pub fn last_counts(&self) -> Counts {
        let counted = self.counted();
        self.last.set(Some(counted));
        counted.since(&self.made.before)
    }

    fn counted(&self) -> Counts {
        self.places()
            .fold(Counts::default(), |counts, (hierarchy, dir)| {
                let mut read = |file| self.made.open.read(dir, file).ok();
                files::read_counts(self.root.plan.version, hierarchy, &mut read, counts)
            })
    }

    /// Whether the cgroup has every controller that the cgroup layer uses. A host may have been booted, or a cgroup
    /// delegated, without one.
    pub fn is_complete(&self) -> bool {
        let mut limiting = Controller::LIMITING.into_iter();
        limiting.all(|controller| self.root.plan.limits_by(controller))
    }

    /// Whether the cgroup counts CPU time.
    pub fn counts_cpu(&self) -> bool {
        let counts = |hierarchy: &Hierarchy| files::counts_cpu(self.root.plan.version, hierarchy);
        self.root.plan.hierarchies.iter().any(counts)
    }

    /// Returns the CPU time since the worker joined, in microseconds.
    pub fn cpu_us(&self) -> Option<u64> {
        let counted = self.places().find_map(|(hierarchy, dir)| {
            let mut read = |file| self.made.open.read(dir, file).ok();
            files::cpu_us(self.root.plan.version, hierarchy, &mut read)
        })?;
        Some(counted.saturating_sub(self.made.before.cpu_us.unwrap_or(0)))
    }

    /// Returns the cgroups in which a joined process must be: a controller of each hierarchy (`None` on version 2), and
    /// the directory.
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

    /// Resets the cgroup for another worker. Returns `None` if that is impossible.
    fn renew(&mut self) -> Option<()> {
        let is_known_to_be_used = self.seen.get().is_some_and(|counts| !counts.left_nothing());
        if is_known_to_be_used
            || self.is_changed.get()
            || !self.root.can_reset_peaks.load(Ordering::Relaxed)
        {
            return None;
        }
        let counted = self.last.get().unwrap_or_else(|| self.counted());
        if !counted.since(&self.made.before).left_nothing() {
            return None;
        }
        let mut empty = false;
        for (hierarchy, dir) in self.places() {
            let read = |file| {
                self.made
                    .open
                    .read(dir, file)
                    .ok()?
                    .trim()
                    .parse::<u64>()
                    .ok()
            };
            if hierarchy.controllers.contains(&Controller::Pids) {
                // Tasks are counted until they are reaped, and a worker's tasks are in all of its hierarchies. If this
                // hierarchy has none, no other has any.
                empty = read("pids.current")? == 0;
            }
            if hierarchy.controllers.contains(&Controller::Memory) {
                let [peak, _] = files::memory_counters(self.root.plan.version);
                let charged = files::memory_charged(self.root.plan.version);
                if read(charged)? > MAX_CHARGED {
                    return None;
                }
                let reset = self.made.open.reset(dir, peak);
                reset
                    .map_err(|error| self.root.note_refused_reset(&error))
                    .ok()?;
            }
        }
        self.made.before = counted;
        empty.then_some(())
    }
}

impl Drop for WorkerCgroup {
    fn drop(&mut self) {
        let is_renewed = self.renew().is_some();
        let made = std::mem::take(&mut self.made);
        // A cgroup that is not kept is removed here, without holding the lock.
        let removed = if is_renewed {
            self.root.keep(made)
        } else {
            Some(made)
        };
        if let Some(made) = removed {
            leftovers::remove(made, &self.root.plan);
        }
    }
}
