//! Landlock rules: the same view of files as the mounts give, by a second and independent wall.
//!
//! They name what a worker sees once its own mounts stand, and each worker pays for every one of
//! them, so that there are as few as will do. `/` itself gets none, so that listing it is refused:
//! that refusal is how a worker sees that the layer holds.

use std::path::{Path, PathBuf};

use super::places::{ETC, SHM, TMP, WORK};
use super::root::DEVICES;
use super::view::View;
use crate::jail::program::{PathAccess, PathRule};
use crate::policy::{Level, Policy, ProcVisibility};

pub(super) fn rules(policy: &Policy, level: Level, view: &View) -> Vec<PathRule> {
    let mut rules = match level {
        Level::Landlock => on_the_hosts_root(),
        Level::Standard | Level::Full => on_a_root_of_its_own(policy),
    };
    for tree in &view.trees {
        let covered =
            |above: &PathRule| tree.path.starts_with(&above.path) && tree.allow == above.allow;
        if !rules.iter().any(covered) {
            rules.push(rule(&tree.path, tree.allow));
        }
    }
    rules
}

/// What is in these directories is the sandbox's, or was put there because it may be used.
fn on_a_root_of_its_own(policy: &Policy) -> Vec<PathRule> {
    let mut rules = vec![
        rule(ETC, PathAccess::Read),
        rule("/dev", PathAccess::ReadWriteFile),
    ];
    if policy.filesystem().proc == ProcVisibility::Own {
        rules.push(rule("/proc", PathAccess::Read));
    }
    rules.extend([WORK, TMP, SHM].map(|dir| rule(dir, PathAccess::ReadWrite)));
    rules
}

/// The host's own directories have more in them than a guest may have.
fn on_the_hosts_root() -> Vec<PathRule> {
    // The session's directory, in whose place this stands until it is known.
    let mut rules = vec![rule(WORK, PathAccess::ReadWrite)];
    rules.extend(DEVICES.map(|name| rule(Path::new("/dev").join(name), PathAccess::ReadWriteFile)));
    rules
}

fn rule(path: impl Into<PathBuf>, allow: PathAccess) -> PathRule {
    PathRule {
        path: path.into(),
        allow,
    }
}
