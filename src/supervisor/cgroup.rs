//! One cgroup for each worker (cgroups(7)): memory, processes and processor share, on version 1
//! and on version 2; swept after a supervisor that was killed.

mod files;
mod meter;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::meter::Meter;

use super::error::SupervisorError;
use super::owner;
use crate::host::{Controller, SUPERVISOR_LEAF, V2Entry};
use crate::plan::{CgroupPlan, CgroupVersion, Hierarchy, Presence};

/// This supervisor's directory in each hierarchy, under which its workers' cgroups are.
///
/// Removed when dropped; one that could not be, because its supervisor was killed, is removed by
/// the next supervisor that starts.
#[derive(Debug)]
pub struct CgroupRoot {
    plan: CgroupPlan,
    dirs: Vec<PathBuf>,
    next: AtomicU64,
}

impl CgroupRoot {
    /// Makes this supervisor's directories.
    pub fn create(plan: &CgroupPlan) -> Result<Self, SupervisorError> {
        let name = owner::own_name();
        let mut root = Self {
            plan: plan.clone(),
            dirs: Vec::new(),
            next: AtomicU64::new(0),
        };
        for hierarchy in &plan.hierarchies {
            if let CgroupVersion::V2 { entry } = plan.version {
                enter_v2(hierarchy, entry)?;
            }
            sweep(&hierarchy.parent);
            let dir = hierarchy.parent.join(&name);
            make_dir(&dir)?;
            root.dirs.push(dir.clone());
            if plan.version != CgroupVersion::V1 {
                files::enable_controllers(&dir, hierarchy)
                    .map_err(refused("enable the controllers of", &dir))?;
            }
        }
        Ok(root)
    }

    /// Makes a cgroup for one worker.
    pub fn worker(self: &Arc<Self>) -> Result<WorkerCgroup, SupervisorError> {
        let name = format!("w{}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut made = WorkerCgroup {
            root: Arc::clone(self),
            dirs: Vec::with_capacity(self.dirs.len()),
        };
        for (hierarchy, parent) in self.plan.hierarchies.iter().zip(&self.dirs) {
            let dir = parent.join(&name);
            make_dir(&dir)?;
            made.dirs.push(dir.clone());
            for setting in &hierarchy.settings {
                let file = dir.join(setting.file);
                match files::write(&file, &setting.value) {
                    Err(error)
                        if setting.presence == Presence::WhereThere
                            && error.kind() == io::ErrorKind::NotFound => {}
                    other => other.map_err(refused("set a limit of", &file))?,
                }
            }
        }
        Ok(made)
    }
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        self.dirs.iter().for_each(|dir| remove_tree(dir));
    }
}

/// Removes the directories of supervisors that are gone, with what is still in them.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(owner::is_abandoned) {
            files::kill_all(&entry.path());
            remove_tree(&entry.path());
        }
    }
}

/// The kernel allows controllers only in a cgroup without processes of its own, so that a
/// supervisor that is alone in a delegated one first moves into a child of it.
fn enter_v2(hierarchy: &Hierarchy, entry: V2Entry) -> Result<(), SupervisorError> {
    let dir = &hierarchy.parent;
    if entry == V2Entry::MoveSelf {
        let leaf = dir.join(SUPERVISOR_LEAF);
        make_dir(&leaf)?;
        let procs = leaf.join("cgroup.procs");
        fs::write(&procs, "0").map_err(refused("move the supervisor into", &leaf))?;
    }
    files::enable_controllers(dir, hierarchy).map_err(refused("enable the controllers of", dir))
}

/// The cgroup of one worker. Removed when dropped, with whatever is still in it.
#[derive(Debug)]
pub struct WorkerCgroup {
    root: Arc<CgroupRoot>,
    dirs: Vec<PathBuf>,
}

/// What a cgroup counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Largest memory, bytes.
    pub peak_memory: Option<u64>,
    /// Largest number of tasks.
    pub peak_pids: Option<u64>,
    /// Processor time, microseconds.
    pub cpu_us: Option<u64>,
    /// Processes that the kernel killed for want of memory.
    pub oom_kills: u64,
    /// Forks and threads that were refused.
    pub refused_forks: u64,
}

impl Counts {
    /// What was counted since an earlier look; peaks stay those of the whole life.
    #[must_use]
    pub fn since(self, earlier: &Self) -> Self {
        let cpu = self.cpu_us.zip(earlier.cpu_us);
        Self {
            cpu_us: cpu.map(|(now, then)| now.saturating_sub(then)),
            oom_kills: self.oom_kills.saturating_sub(earlier.oom_kills),
            refused_forks: self.refused_forks.saturating_sub(earlier.refused_forks),
            ..self
        }
    }
}

impl WorkerCgroup {
    /// Open files through which a process joins, one for each hierarchy.
    pub fn join_files(&self) -> Result<Vec<OwnedFd>, SupervisorError> {
        let name = files::join_file(self.root.plan.version);
        let open = |dir: &PathBuf| {
            let path = dir.join(name);
            let file = fs::OpenOptions::new().write(true).open(&path);
            file.map(OwnedFd::from).map_err(refused("open", &path))
        };
        self.dirs.iter().map(open).collect()
    }

    /// What has been counted so far.
    pub fn counts(&self) -> Counts {
        self.places()
            .fold(Counts::default(), |counts, (hierarchy, dir)| {
                let mut read = |file: &'static str| files::read(dir, file);
                files::read_counts(self.root.plan.version, hierarchy, &mut read, counts)
            })
    }

    /// Whether it counts processor time.
    pub fn counts_cpu(&self) -> bool {
        let counts = |hierarchy: &Hierarchy| files::counts_cpu(self.root.plan.version, hierarchy);
        self.root.plan.hierarchies.iter().any(counts)
    }

    /// Processor time so far, microseconds.
    pub fn cpu_us(&self) -> Option<u64> {
        self.places().find_map(|(hierarchy, dir)| {
            let mut read = |file: &'static str| files::read(dir, file);
            files::cpu_us(self.root.plan.version, hierarchy, &mut read)
        })
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
            .zip(self.dirs.iter().map(PathBuf::as_path))
    }
}

impl Drop for WorkerCgroup {
    fn drop(&mut self) {
        self.dirs.iter().for_each(|dir| remove_tree(dir));
    }
}

fn make_dir(dir: &Path) -> Result<(), SupervisorError> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(refused("make", dir)),
    }
}

/// Removes a cgroup and those below it. The kernel refuses while a process is in it, which the
/// last moments of a dying one are: a few short waits are enough.
fn remove_tree(dir: &Path) {
    // What a worker leaves is empty, and has none below it.
    match fs::remove_dir(dir) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
        _ => return,
    }
    for child in fs::read_dir(dir).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&child.path());
        }
    }
    for wait_ms in [0, 1, 5, 20, 100] {
        std::thread::sleep(std::time::Duration::from_millis(wait_ms));
        match fs::remove_dir(dir) {
            Err(error) if error.raw_os_error() == Some(libc::EBUSY) => files::kill_all(dir),
            _ => return,
        }
    }
}

fn refused<'a>(
    what: &'static str,
    path: &'a Path,
) -> impl FnOnce(io::Error) -> SupervisorError + 'a {
    move |error| SupervisorError::Cgroup {
        what,
        path: path.to_owned(),
        cause: error.to_string(),
    }
}
