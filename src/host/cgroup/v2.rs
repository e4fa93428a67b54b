//! Version 2: where in the one hierarchy cgroups with controllers can be made.

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

/// The top of the hierarchy as far as it is mounted, and our own directory in it.
pub(super) fn own_directory(mounts: &[Mount], own: &OwnCgroups) -> Option<(PathBuf, PathBuf)> {
    let cgroup = own.v2.as_ref()?;
    mounts
        .iter()
        .filter(|mount| mount.kind == "cgroup2")
        .find_map(|mount| Some((mount.point.clone(), beneath(mount, cgroup)?)))
}

/// What is read of a version 2 hierarchy, so that the choice can be tested without one.
pub(super) trait Tree {
    fn may_make_cgroups_in(&self, dir: &Path) -> bool;
    fn available(&self, dir: &Path) -> BTreeSet<Controller>;
    fn enabled(&self, dir: &Path) -> BTreeSet<Controller>;
    fn only_this_process_in(&self, dir: &Path) -> bool;
}

/// Chooses among our own cgroup and its ancestors.
///
/// Our own first: what was delegated to us is ours to arrange. An ancestor serves where its
/// children already have the controllers, so that nothing of others has to be changed.
pub(super) fn choose(top: &Path, own: &Path, tree: &dyn Tree) -> CgroupSupport {
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
