//! Finds out where this process may create cgroups (cgroups(7)): on version 1, on version 2, or nowhere.

mod room;
mod v2;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use serde::Serialize;

use self::room::own_and_ancestors;
pub(super) use self::room::room;

use super::Errno;
use super::mountinfo::{self, Mount};
use crate::outcome::word_enum;

word_enum! {
    /// The controllers that Sandfork uses, by the kernel's names.
    pub enum Controller {
        /// The total memory of all processes.
        Memory = "memory",
        /// The number of tasks.
        Pids = "pids",
        /// The share of processors.
        Cpu = "cpu",
        /// CPU time used. On version 2, every cgroup counts it.
        Cpuacct = "cpuacct",
    }
}

impl Controller {
    /// The controllers through which the cgroup layer sets limits.
    pub const LIMITING: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    /// Returns the kernel's name of the controller.
    pub fn name(self) -> &'static str {
        self.as_str()
    }
}

/// Where cgroups can be created.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CgroupSupport {
    /// Version 1: one hierarchy per controller. Maps each usable controller to the directory in which to create
    /// cgroups.
    V1(BTreeMap<Controller, PathBuf>),
    /// Version 2: one directory.
    V2 {
        /// The directory in which to create cgroups.
        dir: PathBuf,
        /// The controllers available to new cgroups.
        controllers: BTreeSet<Controller>,
        /// What must be done to the directory first.
        entry: V2Entry,
    },
    /// No cgroup can be created, for this reason.
    Nowhere(CgroupAbsence),
}

/// What must be done to a version 2 directory before cgroups with controllers can be created in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum V2Entry {
    /// Nothing.
    Ready,
    /// This process, the only one in the cgroup, moves into a child named [`SUPERVISOR_LEAF`] and enables the
    /// controllers. The kernel enables controllers only in a cgroup that contains no processes.
    MoveSelf,
}

/// The name of the child cgroup into which a supervisor moves.
pub const SUPERVISOR_LEAF: &str = "sandfork-supervisor";

/// The reason why no cgroups can be created.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CgroupAbsence {
    /// No cgroup file system is mounted.
    NotMounted,
    /// The mounts or this process's cgroups could not be read.
    Unread {
        /// The file that could not be read.
        file: PathBuf,
        /// The error of the read.
        errno: Errno,
    },
    /// Version 2 is mounted, but this user may not create cgroups in it. Holds this process's cgroup directory.
    NotWritable(PathBuf),
    /// The controllers are on version 1, but this user may not create cgroups there. Holds this process's directory in
    /// the memory hierarchy.
    NotWritableV1(PathBuf),
    /// The directory is writable and has controllers, but contains other processes too. The kernel delegates
    /// controllers only from a cgroup without processes. Holds this process's cgroup directory.
    Occupied(PathBuf),
    /// The directory is writable, but no controller was delegated to it. Holds this process's cgroup directory.
    NoControllers(PathBuf),
}

impl CgroupSupport {
    /// Finds out where this process may create cgroups. A child of this process counts as another process in its
    /// cgroup.
    pub fn probe() -> Self {
        match (read("/proc/self/mountinfo"), read("/proc/self/cgroup")) {
            (Ok(mounts), Ok(own)) => {
                Self::choose(&mountinfo::parse(&mounts), &OwnCgroups::parse(&own))
            }
            (Err(reason), _) | (_, Err(reason)) => Self::Nowhere(reason),
        }
    }

    fn choose(mounts: &[Mount], own: &OwnCgroups) -> Self {
        let v1 = probe_v1(mounts, own);
        if Controller::LIMITING
            .iter()
            .all(|controller| v1.contains_key(controller))
        {
            return Self::V1(v1);
        }
        match v2::probe(mounts, own) {
            Self::Nowhere(_) if !v1.is_empty() => Self::V1(v1),
            // A hybrid setup: the controllers are on version 1, so version 1 must be made writable.
            Self::Nowhere(_) if own.v1.contains_key("memory") => {
                Self::Nowhere(unwritable_v1(mounts, own))
            }
            v2 => v2,
        }
    }
}

/// Reads a file of `/proc`; empty if the kernel does not have the file.
fn read(file: &str) -> Result<String, CgroupAbsence> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CgroupAbsence::Unread {
            file: file.into(),
            errno: Errno::of(&error),
        }),
        text => Ok(text.unwrap_or_default()),
    }
}

/// Returns the memory limit that this process's cgroups set, in bytes.
pub(super) fn memory_limit() -> Option<u64> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let cgroups = own_and_ancestors(Controller::Memory)?;
    // Version 1 only. Includes cgroups above those that this process sees.
    let stat = read(cgroups.first()?.join("memory.stat"));
    let mut lines = stat.lines();
    if let Some(limit) = lines.find_map(|line| line.strip_prefix("hierarchical_memory_limit ")) {
        return limit.parse().ok();
    }
    let limits = cgroups.iter().map(|dir| read(dir.join("memory.max")));
    limits.filter_map(|max| max.trim().parse().ok()).min()
}

/// `/proc/self/cgroup`: the path of this process in each hierarchy.
#[derive(Debug, Default, Eq, PartialEq)]
struct OwnCgroups {
    v1: BTreeMap<String, PathBuf>,
    v2: Option<PathBuf>,
}

impl OwnCgroups {
    fn parse(text: &str) -> Self {
        let mut own = Self::default();
        for line in text.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(number), Some(names), Some(path)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if number == "0" && names.is_empty() {
                own.v2 = Some(path.into());
            }
            for name in names.split(',').filter(|name| !name.is_empty()) {
                own.v1.insert(name.to_owned(), path.into());
            }
        }
        own
    }
}

/// Returns the path of a cgroup under its hierarchy's mount. `None` if the cgroup is outside the mount, as in some
/// containers.
fn beneath(mount: &Mount, cgroup: &Path) -> Option<PathBuf> {
    let inside = cgroup.strip_prefix(&mount.root).ok()?;
    Some(if inside.as_os_str().is_empty() {
        mount.point.clone()
    } else {
        mount.point.join(inside)
    })
}

/// Returns the mount point of a controller's hierarchy, and this process's directory in it.
fn v1_directory(
    mounts: &[Mount],
    own: &OwnCgroups,
    controller: Controller,
) -> Option<(PathBuf, PathBuf)> {
    let name = controller.name();
    let cgroup = own.v1.get(name)?;
    mounts
        .iter()
        .filter(|mount| mount.kind == "cgroup" && mount.options.iter().any(|o| o == name))
        .find_map(|mount| Some((mount.point.clone(), beneath(mount, cgroup)?)))
}

fn probe_v1(mounts: &[Mount], own: &OwnCgroups) -> BTreeMap<Controller, PathBuf> {
    Controller::ALL
        .into_iter()
        .filter_map(|controller| Some((controller, v1_directory(mounts, own, controller)?.1)))
        .filter(|(_, dir)| may_make_cgroups_in(dir))
        .collect()
}

fn unwritable_v1(mounts: &[Mount], own: &OwnCgroups) -> CgroupAbsence {
    match v1_directory(mounts, own, Controller::Memory) {
        Some((_, dir)) => CgroupAbsence::NotWritableV1(dir),
        None => CgroupAbsence::NotMounted,
    }
}

/// Checks with the effective ids. Returns false on a read-only mount, as in containers, even for root.
fn may_make_cgroups_in(dir: &Path) -> bool {
    let wanted = AccessFlags::W_OK | AccessFlags::X_OK;
    faccessat(AT_FDCWD, dir, wanted, AtFlags::AT_EACCESS).is_ok()
}

fn may_write(file: &Path) -> bool {
    faccessat(AT_FDCWD, file, AccessFlags::W_OK, AtFlags::AT_EACCESS).is_ok()
}

#[cfg(test)]
mod tests;
