//! Version 2: where in the single hierarchy cgroups with controllers can be created.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::{
    CgroupAbsence, CgroupSupport, Controller, OwnCgroups, SUPERVISOR_LEAF, V2Entry, beneath,
    may_make_cgroups_in, may_write,
};
use crate::host::mountinfo::Mount;

pub(super) fn probe(mounts: &[Mount], own: &OwnCgroups) -> CgroupSupport {
    match own_directory(mounts, own) {
        Some((top, dir)) => choose(&top, &dir, &FileTree),
        None => CgroupSupport::Nowhere {
            reason: CgroupAbsence::NotMounted,
        },
    }
}

/// The top of the hierarchy as far as it is mounted, and this process's directory in it.
pub(super) fn own_directory(mounts: &[Mount], own: &OwnCgroups) -> Option<(PathBuf, PathBuf)> {
    let cgroup = own.v2.as_ref()?;
    mounts
        .iter()
        .filter(|mount| mount.kind == "cgroup2")
        .find_map(|mount| Some((mount.point.clone(), beneath(mount, cgroup)?)))
}

/// The reads of a version 2 hierarchy, as a trait so that tests can choose without one.
pub(super) trait Tree {
    fn may_make_cgroups_in(&self, dir: &Path) -> bool;
    fn available(&self, dir: &Path) -> BTreeSet<Controller>;
    fn enabled(&self, dir: &Path) -> BTreeSet<Controller>;
    fn occupants(&self, dir: &Path) -> Occupants;
}

/// Which processes are directly in a cgroup. The kernel delegates controllers only from an empty
/// cgroup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Occupants {
    None,
    OnlyThisProcess,
    Others,
}

/// Chooses among this process's own cgroup and its ancestors.
///
/// Its own cgroup comes first, because a delegated cgroup is Sandfork's to arrange. Then comes the
/// parent, if that is what was delegated and this process was put into a part of it
/// (`DelegateSubgroup=` of systemd). Any other ancestor works if its children already have the
/// controllers, because then no other owner's cgroup has to change.
pub(super) fn choose(top: &Path, own: &Path, tree: &dyn Tree) -> CgroupSupport {
    let is_leaf = own.file_name().is_some_and(|name| name == SUPERVISOR_LEAF);
    let homes = own.ancestors().take_while(|dir| dir.starts_with(top));
    let homes = homes.skip(usize::from(is_leaf));
    let writable: Vec<&Path> = homes.filter(|dir| tree.may_make_cgroups_in(dir)).collect();
    let (Some(nearest), Some(highest)) = (writable.first().copied(), writable.last().copied())
    else {
        let dir = own.to_owned();
        return nowhere(CgroupAbsence::NotWritable { dir });
    };
    let ready = |dir: &Path| v2(dir, tree.enabled(dir), V2Entry::Ready);
    if complete(&tree.enabled(nearest)) {
        return ready(nearest);
    }
    let available = tree.available(own);
    let is_ours = nearest == own;
    let may_move = is_ours && tree.occupants(own) == Occupants::OnlyThisProcess;
    if may_move && complete(&available) {
        return v2(own, available, V2Entry::MoveSelf);
    }
    if let Some(dir) = writable.iter().find(|dir| complete(&tree.enabled(dir))) {
        return ready(dir);
    }
    let is_part = own.parent() == Some(highest) && tree.occupants(highest) == Occupants::None;
    if is_part && complete(&tree.available(highest)) {
        return v2(highest, tree.available(highest), V2Entry::Ready);
    }
    if may_move && !available.is_empty() {
        return v2(own, available, V2Entry::MoveSelf);
    }
    match writable.iter().max_by_key(|dir| tree.enabled(dir).len()) {
        Some(dir) if !tree.enabled(dir).is_empty() => ready(dir),
        _ if is_ours && !available.is_empty() => nowhere(CgroupAbsence::Occupied {
            dir: own.to_owned(),
        }),
        _ => nowhere(CgroupAbsence::NoControllers {
            dir: own.to_owned(),
        }),
    }
}

fn v2(dir: &Path, controllers: BTreeSet<Controller>, entry: V2Entry) -> CgroupSupport {
    CgroupSupport::V2 {
        dir: dir.to_owned(),
        controllers,
        entry,
    }
}

fn nowhere(reason: CgroupAbsence) -> CgroupSupport {
    CgroupSupport::Nowhere { reason }
}

fn complete(controllers: &BTreeSet<Controller>) -> bool {
    let wanted = Controller::LIMITING;
    wanted.iter().all(|wanted| controllers.contains(wanted))
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
        // Moving a process into a child also needs write access to the common ancestor's list.
        may_make_cgroups_in(dir) && may_write(&dir.join("cgroup.procs"))
    }

    fn available(&self, dir: &Path) -> BTreeSet<Controller> {
        Self::controllers(&dir.join("cgroup.controllers"))
    }

    fn enabled(&self, dir: &Path) -> BTreeSet<Controller> {
        Self::controllers(&dir.join("cgroup.subtree_control"))
    }

    /// Treats an unreadable cgroup as occupied.
    fn occupants(&self, dir: &Path) -> Occupants {
        let own = std::process::id().to_string();
        match fs::read_to_string(dir.join("cgroup.procs")) {
            Ok(procs) if procs.is_empty() => Occupants::None,
            Ok(procs) if procs.lines().all(|line| line == own) => Occupants::OnlyThisProcess,
            _ => Occupants::Others,
        }
    }
}
