//! Where this process may create cgroups (cgroups(7)): version 1, version 2, or nowhere.

mod room;
mod v2;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use serde::Serialize;

use self::room::own_and_above;
pub(super) use self::room::room;

use super::Errno;
use super::mountinfo::{self, Mount};
use crate::outcome::word_enum;

word_enum! {
    /// The controllers that Sandfork uses, by the kernel's names.
    pub enum Controller {
        /// Memory of all processes together.
        Memory = "memory",
        /// Number of tasks.
        Pids = "pids",
        /// Share of processors.
        Cpu = "cpu",
        /// Processor time used; on version 2 part of every cgroup.
        Cpuacct = "cpuacct",
    }
}

impl Controller {
    /// The controllers with which the cgroup layer sets limits.
    pub const LIMITING: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    /// The kernel's name of the controller.
    pub fn name(self) -> &'static str {
        self.as_str()
    }
}

/// Where cgroups can be created.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CgroupSupport {
    /// Version 1: one hierarchy per controller, each with the directory in which to create cgroups. Holds the
    /// controllers in whose hierarchies this process may create cgroups.
    V1(BTreeMap<Controller, PathBuf>),
    /// Version 2: one directory.
    V2 {
        /// The directory in which to create cgroups.
        dir: PathBuf,
        /// The controllers that the new cgroups have.
        controllers: BTreeSet<Controller>,
        /// What the directory still needs.
        entry: V2Entry,
    },
    /// No cgroup can be created. Holds why not.
    Nowhere(CgroupAbsence),
}

/// What a version 2 directory still needs before cgroups with controllers can be created in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum V2Entry {
    /// It needs nothing.
    Ready,
    /// This process, the only one in it, moves into a child named [`SUPERVISOR_LEAF`] and enables
    /// the controllers. The kernel allows that only in a cgroup without processes of its own.
    MoveSelf,
}

/// The name of the child into which a supervisor moves itself.
pub const SUPERVISOR_LEAF: &str = "sandfork-supervisor";

/// Why no cgroups can be created.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CgroupAbsence {
    /// No cgroup file system is mounted.
    NotMounted,
    /// The kernel did not report the mounts or this process's cgroups.
    Unread {
        /// The file that could not be read.
        file: PathBuf,
        /// The error of the read.
        errno: Errno,
    },
    /// Version 2 is mounted, and this user may not create cgroups in it. Holds this process's own cgroup
    /// directory.
    NotWritable(PathBuf),
    /// The controllers are on version 1, and this user may not create cgroups there. Holds this process's own
    /// directory of the memory controller.
    NotWritableV1(PathBuf),
    /// This process may write to the directory and it has controllers, but other processes are in
    /// it too. The kernel delegates controllers only from a cgroup without processes. Holds this process's
    /// own cgroup directory.
    Occupied(PathBuf),
    /// This process may write to the directory, but no controller was delegated to it. Holds this process's
    /// own cgroup directory.
    NoControllers(PathBuf),
}

impl CgroupSupport {
    /// Finds out where this process may create cgroups. A child of this process is an occupant of its
    /// cgroup like any other process.
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
            // A hybrid setup: the controllers are on version 1, so version 1 is what must be made
            // writable.
            Self::Nowhere(_) if own.v1.contains_key("memory") => {
                Self::Nowhere(unwritable_v1(mounts, own))
            }
            v2 => v2,
        }
    }
}

/// The contents of a file of `/proc`; empty on a kernel without the file.
fn read(file: &str) -> Result<String, CgroupAbsence> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(CgroupAbsence::Unread {
            file: file.into(),
            errno: Errno::of(&error),
        }),
        text => Ok(text.unwrap_or_default()),
    }
}

/// The part of the machine's memory that the cgroups of this process leave to it, bytes.
pub(super) fn memory_limit() -> Option<u64> {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let cgroups = own_and_above(Controller::Memory)?;
    // Only on version 1. It includes the cgroups that this process does not see.
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

/// The path of a hierarchy's cgroup under its mount. `None` if the cgroup lies outside the mount,
/// as a container's may.
fn beneath(mount: &Mount, cgroup: &Path) -> Option<PathBuf> {
    let inside = cgroup.strip_prefix(&mount.root).ok()?;
    Some(if inside.as_os_str().is_empty() {
        mount.point.clone()
    } else {
        mount.point.join(inside)
    })
}

/// The top of a controller's hierarchy as far as it is mounted, and this process's directory in it.
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

/// Decides by the effective ids. False on a read-only mount, as in containers, even for root.
fn may_make_cgroups_in(dir: &Path) -> bool {
    let wanted = AccessFlags::W_OK | AccessFlags::X_OK;
    faccessat(AT_FDCWD, dir, wanted, AtFlags::AT_EACCESS).is_ok()
}

fn may_write(file: &Path) -> bool {
    faccessat(AT_FDCWD, file, AccessFlags::W_OK, AtFlags::AT_EACCESS).is_ok()
}

#[cfg(test)]
mod tests;
