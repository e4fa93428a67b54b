//! Landlock rules: the same view of files as the mounts give, by a second and independent wall.
//!
//! A rule on a directory covers what is mounted on it later, because Landlock walks up through
//! mounts. `/` itself gets none, so that listing it is refused: that refusal is how a worker sees
//! that the layer holds.

use std::path::{Path, PathBuf};

use super::places::{ETC, SHM, TMP, WORK};
use super::root::DEVICES;
use super::view::View;
use crate::jail::program::{PathAccess, PathRule};
use crate::policy::{Level, Policy, ProcVisibility};

pub(super) fn rules(policy: &Policy, level: Level, view: &View) -> Vec<PathRule> {
    let mut rules: Vec<PathRule> = Vec::new();
    match level {
        // The session's directory, in whose place this stands until it is known.
        Level::Landlock => rules.push(rule(WORK, PathAccess::ReadWrite)),
        Level::Standard | Level::Full => {
            rules.push(rule(ETC, PathAccess::Read));
            if policy.filesystem().proc == ProcVisibility::Own {
                rules.push(rule("/proc", PathAccess::Read));
            }
            rules.extend([WORK, TMP, SHM].map(|dir| rule(dir, PathAccess::ReadWrite)));
        }
    }
    rules.extend(DEVICES.map(|name| rule(Path::new("/dev").join(name), PathAccess::ReadWriteFile)));
    let has_etc = level > Level::Landlock;
    let covered =
        |path: &Path, allow| has_etc && path.starts_with(ETC) && allow == PathAccess::Read;
    let trees = view
        .trees
        .iter()
        .filter(|tree| !covered(&tree.path, tree.allow));
    rules.extend(trees.map(|tree| rule(&tree.path, tree.allow)));
    rules
}

fn rule(path: impl Into<PathBuf>, allow: PathAccess) -> PathRule {
    PathRule {
        path: path.into(),
        allow,
    }
}
