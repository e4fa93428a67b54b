//! Computes the Landlock rules: the same view of files as that of the mounts, enforced by a second,
//! independent layer.
//!
//! The rules name the paths that a worker sees once its own mounts are in place. Every rule costs each
//! worker time, so there are as few as possible. No rule lets a worker read the witness file of a private
//! root ([`WITNESS`](sandfork_jail::program::WITNESS)), or list `/` of the host's root: the worker's
//! self-check tries that access, and the refusal shows that Landlock is in force.

use std::path::{Path, PathBuf};

use super::CgroupPlan;
use super::paths::{ETC, SHM, SYS, TMP, WORK};
use super::root::devices;
use super::view::View;
use crate::policy::{Level, Policy, ProcVisibility, WorkExec};
use sandfork_jail::program::{PathAccess, PathRule};

pub(super) fn rules(
    policy: &Policy,
    level: Level,
    cgroup: Option<&CgroupPlan>,
    view: &View,
) -> Vec<PathRule> {
    let mut rules = match level {
        Level::Landlock => on_the_hosts_root(cgroup),
        Level::Standard | Level::Full => on_a_private_root(policy),
    };
    for tree in &view.trees {
        // Each worker resolves the paths anew, and earlier guests may have changed where a path in a writable tree
        // leads. Such a path needs no rule, because that of the tree covers it.
        if level == Level::Landlock && view.trees.iter().any(|other| tree.is_within(other)) {
            continue;
        }
        let covered =
            |above: &PathRule| tree.path.starts_with(&above.path) && tree.allow == above.allow;
        if !rules.iter().any(covered) {
            rules.push(rule(&tree.path, tree.allow));
        }
    }
    rules
}

/// Returns the rules on a private root, whose directories contain only the sandbox's own files and mounts.
fn on_a_private_root(policy: &Policy) -> Vec<PathRule> {
    let mut rules = vec![
        // Lets the guest list the parent directories of shown trees, whose names come from the policy.
        rule("/", PathAccess::List),
        rule(ETC, PathAccess::Read),
        rule("/dev", PathAccess::ReadWriteFile),
    ];
    if policy.filesystem.proc == ProcVisibility::Own {
        rules.push(rule("/proc", PathAccess::Read));
    }
    rules.push(rule(SYS, PathAccess::Read));
    let work = match policy.filesystem.work_exec.value {
        WorkExec::Allowed => PathAccess::ReadWriteExecute,
        WorkExec::Denied => PathAccess::ReadWrite,
    };
    rules.push(rule(WORK, work));
    rules.extend([TMP, SHM].map(|dir| rule(dir, PathAccess::ReadWrite)));
    rules
}

/// Returns the rules on the host's root, whose directories contain more than a guest may access.
fn on_the_hosts_root(cgroup: Option<&CgroupPlan>) -> Vec<PathRule> {
    // A placeholder for the session's directory until its path is known.
    let mut rules = vec![rule(WORK, PathAccess::ReadWrite)];
    let device = |name| rule(Path::new("/dev").join(name), PathAccess::ReadWriteFile);
    rules.extend(devices(cgroup).map(device));
    rules
}

fn rule(path: impl Into<PathBuf>, allow: PathAccess) -> PathRule {
    PathRule {
        path: path.into(),
        allow,
    }
}
