//! Landlock rules: the same view of files as the mounts give, enforced by a second, independent
//! layer.
//!
//! They name the paths that a worker sees once its own mounts are in place. Each worker pays for
//! every rule, so there are as few as possible. `/` itself gets no rule, so that listing it is
//! refused. By that refusal a worker checks that the layer holds.

use std::path::{Path, PathBuf};

use super::CgroupPlan;
use super::places::{ETC, SHM, SYS, TMP, WORK};
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
        Level::Standard | Level::Full => on_a_root_of_its_own(policy),
    };
    for tree in &view.trees {
        // Each worker looks the paths up anew. Guests of an earlier one may have changed where a path beneath a writable
        // tree leads, and it needs no rule.
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

/// Everything in these directories belongs to the sandbox, or was put there for the guest to use.
fn on_a_root_of_its_own(policy: &Policy) -> Vec<PathRule> {
    let mut rules = vec![
        // The directories on the way to what is shown. Their names are those of the policy's paths.
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

/// The host's own directories contain more than a guest may access.
fn on_the_hosts_root(cgroup: Option<&CgroupPlan>) -> Vec<PathRule> {
    // Stands for the session's directory until its path is known.
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
