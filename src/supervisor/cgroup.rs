//! One cgroup for each worker (cgroups(7)): memory, processes and processor share, on version 1
//! and on version 2; swept after a supervisor that was killed.

mod files;
mod sweep;

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use self::files::Version;
use super::error::SupervisorError;
use crate::host::{CgroupSupport, Controller, SUPERVISOR_LEAF, V2Entry};

/// What a worker's cgroup limits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CgroupLimits {
    /// Bytes of all processes together, tmpfs files and page tables included.
    pub memory: u64,
    /// Tasks.
    pub pids: u32,
    /// Thousandths of a processor.
    pub millicores: u32,
}

/// This supervisor's directory in each hierarchy, under which its workers' cgroups are.
///
/// Removed when dropped; one that could not be, because its supervisor was killed, is removed by
/// the next supervisor that starts.
#[derive(Debug)]
pub struct CgroupRoot {
    hierarchies: Vec<Hierarchy>,
    next: AtomicU64,
}

#[derive(Clone, Debug)]
struct Hierarchy {
    dir: PathBuf,
    version: Version,
}

impl CgroupRoot {
    /// Makes this supervisor's directories where the host allows it; `None` where it does not.
    pub fn create(support: &CgroupSupport) -> Result<Option<Self>, SupervisorError> {
        let places = match support {
            CgroupSupport::Nowhere { .. } => return Ok(None),
            CgroupSupport::V1 { controllers } => controllers
                .iter()
                .map(|(controller, dir)| (dir.clone(), Version::One(*controller)))
                .collect(),
            CgroupSupport::V2 { dir, entry, .. } => {
                enter_v2(dir, *entry)?;
                vec![(dir.clone(), Version::Two)]
            }
        };
        let name = sweep::own_name();
        let mut root = Self { hierarchies: Vec::new(), next: AtomicU64::new(0) };
        for (parent, version) in places {
            sweep::sweep(&parent);
            let dir = parent.join(&name);
            make_dir(&dir)?;
            root.hierarchies.push(Hierarchy { dir: dir.clone(), version });
            if version == Version::Two {
                files::enable_controllers(&dir).map_err(refused("enable the controllers of", &dir))?;
            }
        }
        Ok(Some(root))
    }

    /// Makes a cgroup for one worker.
    pub fn worker(&self, limits: CgroupLimits) -> Result<WorkerCgroup, SupervisorError> {
        let name = format!("w{}", self.next.fetch_add(1, Ordering::Relaxed));
        let mut made = WorkerCgroup { hierarchies: Vec::with_capacity(self.hierarchies.len()) };
        for hierarchy in &self.hierarchies {
            let dir = hierarchy.dir.join(&name);
            make_dir(&dir)?;
            made.hierarchies.push(Hierarchy { dir: dir.clone(), version: hierarchy.version });
            for (file, value) in hierarchy.version.limits(limits) {
                match fs::write(dir.join(file.name), value) {
                    Err(error) if file.is_optional() && error.kind() == io::ErrorKind::NotFound => {}
                    other => other.map_err(refused("set a limit of", &dir.join(file.name)))?,
                }
            }
        }
        Ok(made)
    }
}

impl Drop for CgroupRoot {
    fn drop(&mut self) {
        for hierarchy in &self.hierarchies {
            remove_tree(&hierarchy.dir);
        }
    }
}

/// The kernel allows controllers only in a cgroup without processes of its own, so that a
/// supervisor that is alone in a delegated one first moves into a child of it.
fn enter_v2(dir: &Path, entry: V2Entry) -> Result<(), SupervisorError> {
    if entry == V2Entry::MoveSelf {
        let leaf = dir.join(SUPERVISOR_LEAF);
        make_dir(&leaf)?;
        let procs = leaf.join("cgroup.procs");
        fs::write(&procs, "0").map_err(refused("move the supervisor into", &leaf))?;
    }
    files::enable_controllers(dir).map_err(refused("enable the controllers of", dir))
}

/// The cgroup of one worker. Removed when dropped, with whatever is still in it.
#[derive(Debug)]
pub struct WorkerCgroup {
    hierarchies: Vec<Hierarchy>,
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

impl WorkerCgroup {
    /// Open files through which a process joins, one for each hierarchy.
    pub fn join_files(&self) -> Vec<OwnedFd> {
        self.hierarchies
            .iter()
            .filter_map(|hierarchy| {
                let path = hierarchy.dir.join(hierarchy.version.join_file());
                fs::OpenOptions::new().write(true).open(path).ok().map(OwnedFd::from)
            })
            .collect()
    }

    /// What has been counted so far.
    pub fn counts(&self) -> Counts {
        self.hierarchies.iter().fold(Counts::default(), |counts, hierarchy| {
            hierarchy.version.read(&hierarchy.dir, counts)
        })
    }

    /// Processor time so far, microseconds.
    pub fn cpu_us(&self) -> Option<u64> {
        self.hierarchies.iter().find_map(|hierarchy| hierarchy.version.cpu_us(&hierarchy.dir))
    }

    /// What `/proc/PID/cgroup` must say of a process that joined: controller, and path's end.
    pub fn membership(&self) -> impl Iterator<Item = (Option<Controller>, &Path)> {
        self.hierarchies.iter().map(|hierarchy| {
            let controller = match hierarchy.version {
                Version::One(controller) => Some(controller),
                Version::Two => None,
            };
            (controller, hierarchy.dir.as_path())
        })
    }
}

impl Drop for WorkerCgroup {
    fn drop(&mut self) {
        for hierarchy in &self.hierarchies {
            remove_tree(&hierarchy.dir);
        }
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

fn refused<'a>(what: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> SupervisorError + 'a {
    move |error| SupervisorError::Cgroup { what, path: path.to_owned(), cause: error.to_string() }
}
