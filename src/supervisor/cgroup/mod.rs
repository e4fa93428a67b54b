//! Manages one cgroup per worker (cgroups(7)): limits on memory, processes and CPU share, on version 1 and version 2. A
//! new supervisor sweeps the cgroups that a killed one left.

mod counts;
mod files;
mod leftovers;
mod open_files;
mod worker;

use std::cell::Cell;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub use self::counts::Counts;
pub use self::worker::WorkerCgroup;

use self::worker::Made;
use super::error::{SupervisorError, While, kind_of};
use super::instance_name;
use crate::error::ErrorKind;
use crate::host::{CgroupSupport, SUPERVISOR_LEAF, V2Entry, io_exhaustion_hint, processors};
use crate::plan::{CgroupPlan, CgroupVersion, Presence};
use crate::waiters::lock;

/// This supervisor's directory in each hierarchy, which holds its workers' cgroups.
///
/// Dropping it removes the directories. If the supervisor is killed first, the next supervisor that
/// starts removes them.
#[derive(Debug)]
pub struct CgroupRoot {
    plan: CgroupPlan,
    dirs: Vec<PathBuf>,
    next: AtomicU64,
    /// Empty cgroups that keep no state of the workers they held.
    spare: Mutex<Vec<Made>>,
    most_spare: usize,
    /// False on version 2 before Linux 6.12.
    can_reset_peaks: AtomicBool,
}

impl CgroupRoot {
    /// Creates this supervisor's directories.
    pub fn create(plan: &CgroupPlan) -> Result<Self, SupervisorError> {
        let name = instance_name::own_name().when("read when this process started")?;
        let mut root = Self {
            plan: plan.clone(),
            dirs: Vec::new(),
            next: AtomicU64::new(0),
            spare: Mutex::default(),
            most_spare: most_spare(),
            can_reset_peaks: AtomicBool::new(true),
        };
        for hierarchy in &plan.hierarchies {
            if plan.version != CgroupVersion::V1 {
                let parent = &hierarchy.parent;
                files::enable_controllers(parent, hierarchy)
                    .map_err(refused("enable the controllers of", parent))?;
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

    /// Returns a cgroup for one worker: a spare one, or a new one.
    pub fn worker(self: &Arc<Self>) -> Result<WorkerCgroup, SupervisorError> {
        let spare = lock(&self.spare).pop();
        let made = spare.map_or_else(|| self.make(), Ok)?;
        Ok(WorkerCgroup {
            root: Arc::clone(self),
            made,
            seen: Cell::default(),
            is_changed: Cell::default(),
            last: Cell::default(),
        })
    }

    /// Creates a spare cgroup before the first worker is requested.
    pub fn prepare(&self) {
        // If this fails, so does the first worker's own cgroup, and that run reports the error.
        if let Ok(made) = self.make() {
            drop(self.keep(made));
        }
    }

    fn make(&self) -> Result<Made, SupervisorError> {
        let name = format!("w{}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut made = Made::default();
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
        made.open_counters(&self.plan)?;
        Ok(made)
    }

    /// Keeps a cgroup for another worker, or returns it if there are enough spares.
    fn keep(&self, made: Made) -> Option<Made> {
        let mut spare = lock(&self.spare);
        if spare.len() >= self.most_spare {
            return Some(made);
        }
        spare.push(made);
        None
    }

    /// Records that peaks cannot be reset. The kernel rejects the write if the file could only be opened for reading.
    fn note_refused_reset(&self, error: &io::Error) {
        if error.raw_os_error() == Some(libc::EBADF) {
            self.can_reset_peaks.store(false, Ordering::Relaxed);
        }
    }
}

/// Returns the maximum number of spare cgroups: two per CPU, because one is in use while the previous worker is being
/// torn down. They are at most 16, because each keeps files open, for joining and for reading.
fn most_spare() -> usize {
    2 * processors().get().min(8)
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        // This removes the spare cgroups as well.
        self.dirs.iter().for_each(|dir| remove_tree(dir));
    }
}

/// Removes the directories of supervisors that have ended, with everything left in them.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry
            .file_name()
            .to_str()
            .is_some_and(instance_name::is_abandoned)
        {
            files::kill_all(&entry.path());
            remove_tree(&entry.path());
        }
    }
}

/// Moves this process into a child of its cgroup, if it is alone in a cgroup that is to be the parent of its workers':
/// the kernel enables controllers only in a cgroup without member processes. Must precede the start of the first
/// interpreter, because a child starts in its parent's cgroup.
pub fn make_room(support: &CgroupSupport) -> Result<(), SupervisorError> {
    let CgroupSupport::V2 {
        dir,
        entry: V2Entry::MoveSelf,
        ..
    } = support
    else {
        return Ok(());
    };
    let leaf = dir.join(SUPERVISOR_LEAF);
    make_dir(&leaf)?;
    let procs = leaf.join("cgroup.procs");
    fs::write(&procs, "0").map_err(refused("move the supervisor into", &leaf))
}

fn make_dir(dir: &Path) -> Result<(), SupervisorError> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other.map_err(refused("make", dir)),
    }
}

/// Removes a cgroup and those below it. The kernel refuses while a process is in it, including one that is exiting, for
/// which a few short waits suffice.
fn remove_tree(dir: &Path) {
    // The usual case: a worker's cgroup is empty and has no children.
    match fs::remove_dir(dir) {
        Err(error) if error.raw_os_error() == Some(libc::EBUSY) => {}
        _ => return,
    }
    for child in fs::read_dir(dir).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&child.path());
        }
    }
    // If the zygote was killed from outside, its processes are still exiting, which takes longer on a busy host.
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
    move |cause| {
        let otherwise = "set `assurance.require = \"standard\"` and check `sandfork doctor`";
        let (path, remedy) = (path.display(), io_exhaustion_hint(&cause, otherwise));
        SupervisorError::new(
            kind_of(&cause, ErrorKind::Host),
            format!("could not {what} the cgroup {path}: {cause}; {remedy}"),
        )
    }
}
