//! Where this process may make cgroups (cgroups(7)): version 1, version 2, or nowhere.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use nix::fcntl::{AT_FDCWD, AtFlags};
use nix::unistd::{AccessFlags, faccessat};
use serde::{Deserialize, Serialize};

use super::mountinfo::{self, Mount};

/// The controllers that Sandfork uses.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Controller {
    /// Memory of all processes together.
    Memory,
    /// Number of tasks.
    Pids,
    /// Share of processors.
    Cpu,
    /// Processor time used; on version 2 part of every cgroup.
    Cpuacct,
}

impl Controller {
    /// Those that the cgroup layer limits something with.
    pub const LIMITING: [Self; 3] = [Self::Memory, Self::Pids, Self::Cpu];

    /// The kernel's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
        }
    }

    const ALL: [Self; 4] = [Self::Memory, Self::Pids, Self::Cpu, Self::Cpuacct];
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where cgroups can be made.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "version", rename_all = "kebab-case")]
pub enum CgroupSupport {
    /// Version 1: a hierarchy for each controller, with the directory in which to make cgroups.
    V1 {
        /// Only those in which this process may.
        controllers: BTreeMap<Controller, PathBuf>,
    },
    /// Version 2: one directory.
    V2 {
        /// In which to make cgroups.
        dir: PathBuf,
        /// The controllers that they then have.
        controllers: BTreeSet<Controller>,
        /// What must be done first.
        entry: V2Entry,
    },
    /// Nowhere.
    Nowhere {
        /// Why.
        reason: CgroupAbsence,
    },
}

/// What a version 2 directory still needs before cgroups with controllers can be made in it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum V2Entry {
    /// Nothing.
    Ready,
    /// This process, the only one in it, moves into a child named [`SUPERVISOR_LEAF`] and enables
    /// the controllers: the kernel allows that only in a cgroup without processes of its own.
    MoveSelf,
}

/// The child into which a supervisor moves itself.
pub const SUPERVISOR_LEAF: &str = "sandfork-supervisor";

/// Why there is no place for cgroups.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum CgroupAbsence {
    /// No cgroup file system is mounted.
    NotMounted,
    /// There is one, and this user may not make cgroups in it.
    NotWritable {
        /// This process's own.
        dir: PathBuf,
    },
    /// The directory is ours, but none of the controllers was handed down to it.
    NoControllers {
        /// This process's own.
        dir: PathBuf,
    },
}

impl CgroupSupport {
    pub(super) fn probe() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let mounts = mountinfo::parse(&read("/proc/self/mountinfo"));
        let own = OwnCgroups::parse(&read("/proc/self/cgroup"));
        let v1 = probe_v1(&mounts, &own);
        if Controller::LIMITING
            .iter()
            .all(|controller| v1.contains_key(controller))
        {
            return Self::V1 { controllers: v1 };
        }
        match probe_v2(&mounts, &own) {
            Self::Nowhere { .. } if !v1.is_empty() => Self::V1 { controllers: v1 },
            // A hybrid: the controllers are on version 1, so that is what has to be opened.
            Self::Nowhere { .. } if own.v1.contains_key("memory") => Self::Nowhere {
                reason: unwritable_v1(&mounts, &own),
            },
            v2 => v2,
        }
    }
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

/// Where a cgroup of a hierarchy appears under its mount; `None` when it lies outside, as a
/// container's may.
fn beneath(mount: &Mount, cgroup: &Path) -> Option<PathBuf> {
    let inside = cgroup.strip_prefix(&mount.root).ok()?;
    Some(if inside.as_os_str().is_empty() {
        mount.point.clone()
    } else {
        mount.point.join(inside)
    })
}

fn v1_directory(mounts: &[Mount], own: &OwnCgroups, controller: Controller) -> Option<PathBuf> {
    let name = controller.name();
    let cgroup = own.v1.get(name)?;
    mounts
        .iter()
        .filter(|mount| mount.kind == "cgroup" && mount.options.iter().any(|o| o == name))
        .find_map(|mount| beneath(mount, cgroup))
}

fn probe_v1(mounts: &[Mount], own: &OwnCgroups) -> BTreeMap<Controller, PathBuf> {
    Controller::ALL
        .into_iter()
        .filter_map(|controller| Some((controller, v1_directory(mounts, own, controller)?)))
        .filter(|(_, dir)| may_make_cgroups_in(dir))
        .collect()
}

fn unwritable_v1(mounts: &[Mount], own: &OwnCgroups) -> CgroupAbsence {
    match v1_directory(mounts, own, Controller::Memory) {
        Some(dir) => CgroupAbsence::NotWritable { dir },
        None => CgroupAbsence::NotMounted,
    }
}

fn probe_v2(mounts: &[Mount], own: &OwnCgroups) -> CgroupSupport {
    let nowhere = |reason| CgroupSupport::Nowhere { reason };
    let found = own.v2.as_ref().and_then(|cgroup| {
        mounts
            .iter()
            .filter(|mount| mount.kind == "cgroup2")
            .find_map(|mount| Some((mount, beneath(mount, cgroup)?)))
    });
    let Some((mount, dir)) = found else {
        return nowhere(CgroupAbsence::NotMounted);
    };
    choose_v2(&mount.point, &dir, &FileTree)
}

/// What is read of a version 2 hierarchy, so that the choice can be tested without one.
trait Tree {
    fn may_make_cgroups_in(&self, dir: &Path) -> bool;
    fn available(&self, dir: &Path) -> BTreeSet<Controller>;
    fn enabled(&self, dir: &Path) -> BTreeSet<Controller>;
    fn only_this_process_in(&self, dir: &Path) -> bool;
}

/// Chooses among our own cgroup and its ancestors.
///
/// Our own first: what was delegated to us is ours to arrange. An ancestor serves where its
/// children already have the controllers, so that nothing of others has to be changed.
fn choose_v2(top: &Path, own: &Path, tree: &dyn Tree) -> CgroupSupport {
    let ancestors: Vec<&Path> = own
        .ancestors()
        .take_while(|dir| dir.starts_with(top))
        .collect();
    let ready = |dir: &Path| CgroupSupport::V2 {
        dir: dir.to_owned(),
        controllers: tree.enabled(dir),
        entry: V2Entry::Ready,
    };
    let complete = |controllers: &BTreeSet<Controller>| {
        Controller::LIMITING
            .iter()
            .all(|controller| controllers.contains(controller))
    };
    let is_leaf = own.file_name().is_some_and(|name| name == SUPERVISOR_LEAF);
    let homes = ancestors.iter().copied().skip(usize::from(is_leaf));
    let writable: Vec<&Path> = homes.filter(|dir| tree.may_make_cgroups_in(dir)).collect();
    let Some(nearest) = writable.first().copied() else {
        return CgroupSupport::Nowhere {
            reason: CgroupAbsence::NotWritable {
                dir: own.to_owned(),
            },
        };
    };
    if complete(&tree.enabled(nearest)) {
        return ready(nearest);
    }
    let movable = nearest == own && tree.only_this_process_in(own);
    if movable && complete(&tree.available(own)) {
        let controllers = tree.available(own);
        return CgroupSupport::V2 {
            dir: own.to_owned(),
            controllers,
            entry: V2Entry::MoveSelf,
        };
    }
    if let Some(dir) = writable.iter().find(|dir| complete(&tree.enabled(dir))) {
        return ready(dir);
    }
    if movable && !tree.available(own).is_empty() {
        let controllers = tree.available(own);
        return CgroupSupport::V2 {
            dir: own.to_owned(),
            controllers,
            entry: V2Entry::MoveSelf,
        };
    }
    match writable.iter().max_by_key(|dir| tree.enabled(dir).len()) {
        Some(dir) if !tree.enabled(dir).is_empty() => ready(dir),
        _ => CgroupSupport::Nowhere {
            reason: CgroupAbsence::NoControllers {
                dir: own.to_owned(),
            },
        },
    }
}

/// The mounted hierarchy.
struct FileTree;

impl FileTree {
    fn controllers(file: &Path) -> BTreeSet<Controller> {
        let text = fs::read_to_string(file).unwrap_or_default();
        Controller::LIMITING
            .into_iter()
            .filter(|controller| {
                text.split_whitespace()
                    .any(|name| name == controller.name())
            })
            .collect()
    }
}

impl Tree for FileTree {
    fn may_make_cgroups_in(&self, dir: &Path) -> bool {
        // Putting a process into a child also takes write access to the common ancestor's list.
        may_make_cgroups_in(dir) && may_write(&dir.join("cgroup.procs"))
    }

    fn available(&self, dir: &Path) -> BTreeSet<Controller> {
        Self::controllers(&dir.join("cgroup.controllers"))
    }

    fn enabled(&self, dir: &Path) -> BTreeSet<Controller> {
        Self::controllers(&dir.join("cgroup.subtree_control"))
    }

    fn only_this_process_in(&self, dir: &Path) -> bool {
        let own = std::process::id().to_string();
        fs::read_to_string(dir.join("cgroup.procs"))
            .is_ok_and(|procs| procs.lines().all(|line| line == own))
    }
}

/// By the effective ids; on a read-only mount, as containers have it, false for root too.
fn may_make_cgroups_in(dir: &Path) -> bool {
    let wanted = AccessFlags::W_OK | AccessFlags::X_OK;
    faccessat(AT_FDCWD, dir, wanted, AtFlags::AT_EACCESS).is_ok()
}

fn may_write(file: &Path) -> bool {
    faccessat(AT_FDCWD, file, AccessFlags::W_OK, AtFlags::AT_EACCESS).is_ok()
}

#[cfg(test)]
mod tests;
