//! One cgroup for each worker (cgroups(7)): memory, processes and processor share, on version 1
//! and on version 2; swept after a supervisor that was killed.

mod counts;
mod files;
mod open_files;
mod worker;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

pub use self::counts::Counts;
pub use self::worker::WorkerCgroup;

use self::worker::Made;
use super::error::{SupervisorError, While};
use super::owner;
use crate::host::{SUPERVISOR_LEAF, V2Entry, processors};
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
    /// Empty ones that hold nothing of the workers that they had.
    spare: Mutex<Vec<Made>>,
    most_spare: usize,
}

impl CgroupRoot {
    /// Makes this supervisor's directories.
    pub fn create(plan: &CgroupPlan) -> Result<Self, SupervisorError> {
        let name = owner::own_name().when("read when this process started")?;
        let mut root = Self {
            plan: plan.clone(),
            dirs: Vec::new(),
            next: AtomicU64::new(0),
            spare: Mutex::default(),
            most_spare: most_spare(),
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

    /// A cgroup for one worker: one that is as good as new, or else a new one.
    pub fn worker(self: &Arc<Self>) -> Result<WorkerCgroup, SupervisorError> {
        let spare = self.lock_spare().pop();
        let made = spare.map_or_else(|| self.make(), Ok)?;
        Ok(WorkerCgroup::new(Arc::clone(self), made))
    }

    fn make(&self) -> Result<Made, SupervisorError> {
        let name = format!("w{}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut made = Made::default();
        for (hierarchy, parent) in self.plan.hierarchies.iter().zip(&self.dirs) {
            let dir = parent.join(&name);
            make_dir(&dir)?;
            made.add(dir.clone());
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

    /// Keeps a cgroup for another worker, or gives it back where there are enough.
    fn keep(&self, made: Made) -> Option<Made> {
        let mut spare = self.lock_spare();
        if spare.len() >= self.most_spare {
            return Some(made);
        }
        spare.push(made);
        None
    }

    fn lock_spare(&self) -> std::sync::MutexGuard<'_, Vec<Made>> {
        self.spare.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Two for each processor: one is in use while the worker before it is taken down. Each costs the
/// open files through which it is joined and read.
fn most_spare() -> usize {
    2 * processors().get().min(8)
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        // With the spare ones that are in them.
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
    // Where somebody killed the zygote, what it left is dying, and a busy host lets it take its time.
    for wait_ms in [0, 1, 5, 20, 100, 400, 1600] {
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
        cause: error,
    }
}
