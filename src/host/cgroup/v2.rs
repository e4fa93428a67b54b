//! Finds where cgroups with controllers can be created in the single hierarchy of version 2.

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
        Some((top, dir)) => choose(&top, &dir),
        None => CgroupSupport::Nowhere(CgroupAbsence::NotMounted),
    }
}

/// Returns the mount point of the hierarchy, and this process's directory in it.
pub(super) fn own_directory(mounts: &[Mount], own: &OwnCgroups) -> Option<(PathBuf, PathBuf)> {
    let cgroup = own.v2.as_ref()?;
    mounts
        .iter()
        .filter(|mount| mount.kind == "cgroup2")
        .find_map(|mount| Some((mount.point.clone(), beneath(mount, cgroup)?)))
}

/// The processes directly in a cgroup. The kernel delegates controllers only from an empty cgroup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Occupants {
    None,
    OnlyThisProcess,
    Others,
}

/// Chooses a directory among this process's cgroup and its ancestors.
///
/// This process's cgroup comes first, because a delegated cgroup is Sandfork's to arrange. Next is the parent, if the
/// parent was delegated and this process was put into a subgroup of it (`DelegateSubgroup=` of systemd). Any other
/// ancestor works if its children already have the controllers, because then no cgroup of another owner has to change.
pub(super) fn choose(top: &Path, own: &Path) -> CgroupSupport {
    let is_leaf = own.file_name().is_some_and(|name| name == SUPERVISOR_LEAF);
    let candidates = own.ancestors().take_while(|dir| dir.starts_with(top));
    let candidates = candidates.skip(usize::from(is_leaf));
    let writable: Vec<&Path> = candidates.filter(|dir| may_use(dir)).collect();
    let (Some(nearest), Some(highest)) = (writable.first().copied(), writable.last().copied())
    else {
        let dir = own.to_owned();
        return nowhere(CgroupAbsence::NotWritable(dir));
    };
    let ready = |dir: &Path| v2(dir, enabled(dir), V2Entry::Ready);
    if complete(&enabled(nearest)) {
        return ready(nearest);
    }
    let own_available = available(own);
    let is_own = nearest == own;
    let may_move = is_own && occupants(own) == Occupants::OnlyThisProcess;
    if may_move && complete(&own_available) {
        return v2(own, own_available, V2Entry::MoveSelf);
    }
    if let Some(dir) = writable.iter().find(|dir| complete(&enabled(dir))) {
        return ready(dir);
    }
    let is_part = own.parent() == Some(highest) && occupants(highest) == Occupants::None;
    if is_part && complete(&available(highest)) {
        return v2(highest, available(highest), V2Entry::Ready);
    }
    if may_move && !own_available.is_empty() {
        return v2(own, own_available, V2Entry::MoveSelf);
    }
    match writable.iter().max_by_key(|dir| enabled(dir).len()) {
        Some(dir) if !enabled(dir).is_empty() => ready(dir),
        _ if is_own && !own_available.is_empty() => {
            nowhere(CgroupAbsence::Occupied(own.to_owned()))
        }
        _ => nowhere(CgroupAbsence::NoControllers(own.to_owned())),
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
    CgroupSupport::Nowhere(reason)
}

fn complete(controllers: &BTreeSet<Controller>) -> bool {
    let wanted = Controller::LIMITING;
    wanted.iter().all(|wanted| controllers.contains(wanted))
}

fn may_use(dir: &Path) -> bool {
    // Moving a process into a child also needs write access to the common ancestor's list.
    may_make_cgroups_in(dir) && may_write(&dir.join("cgroup.procs"))
}

/// Returns the controllers that a cgroup can pass to its children.
fn available(dir: &Path) -> BTreeSet<Controller> {
    controllers(&dir.join("cgroup.controllers"))
}

/// Returns the controllers that a cgroup passes to its children.
fn enabled(dir: &Path) -> BTreeSet<Controller> {
    controllers(&dir.join("cgroup.subtree_control"))
}

fn controllers(file: &Path) -> BTreeSet<Controller> {
    let text = fs::read_to_string(file).unwrap_or_default();
    let known = text.split_whitespace().filter_map(|name| name.parse().ok());
    known
        .filter(|controller| Controller::LIMITING.contains(controller))
        .collect()
}

/// Returns the occupants of a cgroup. An unreadable cgroup counts as occupied.
fn occupants(dir: &Path) -> Occupants {
    let own = std::process::id().to_string();
    match fs::read_to_string(dir.join("cgroup.procs")) {
        Ok(procs) if procs.is_empty() => Occupants::None,
        Ok(procs) if procs.lines().all(|line| line == own) => Occupants::OnlyThisProcess,
        _ => Occupants::Others,
    }
}
