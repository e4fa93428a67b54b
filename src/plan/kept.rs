//! What no guest may write to, because later starts run it or believe it, or the caller imports it.

use std::path::{Path, PathBuf};

use super::error::{Place, PlanError};
use super::view::Tree;
use crate::host::{Host, Route};
use crate::policy::Policy;

/// Refuses a writable tree by which guests could exchange what later starts run or believe. A mount over it would protect
/// nothing: a guest that may write above it can rename what is above it. Root's guests too: they take the place of the
/// owner of what they may write to.
pub(super) fn check(trees: &[Tree], host: &Host) -> Result<(), PlanError> {
    for tree in trees.iter().filter(|tree| tree.is_writable()) {
        let writable = tree.real_path();
        for kept in &host.kept {
            let (place, path, what) = (tree.place.clone(), tree.path.clone(), kept.what);
            if let Some(entry) = kept.route.entry_in(writable) {
                let entry = entry.to_owned();
                return Err(PlanError::WritableKept {
                    place,
                    path,
                    what,
                    entry,
                });
            }
            if writable.starts_with(&kept.route.end) {
                let within = kept.route.end.clone();
                return Err(PlanError::WritableInKept {
                    place,
                    path,
                    what,
                    within,
                });
            }
        }
    }
    Ok(())
}

/// Refuses a writable path by which guests could exchange what the caller imports from these absolute paths. A path
/// beneath one may be writable: a project has its data in it. Those that do not exist count, because a guest could make
/// them. `find` has the way of an absolute path.
pub fn check_imports(
    policy: &Policy,
    imports: &[PathBuf],
    mut find: impl FnMut(&Path) -> Route,
) -> Result<(), PlanError> {
    let write = &policy.filesystem().write;
    if write.is_empty() {
        return Ok(());
    }
    let imports: Vec<Route> = imports.iter().map(|path| find(path)).collect();
    for named in write {
        let writable = find(&named.value).end;
        if let Some(entry) = imports.iter().find_map(|route| route.entry_in(&writable)) {
            return Err(PlanError::WritableImports {
                place: Place::Policy(named.origin.clone()),
                path: named.value.clone(),
                entry: entry.to_owned(),
            });
        }
    }
    Ok(())
}

/// Refuses a path that leads through a writable tree and out of it again: a guest may have put the link there, or could
/// put one, to have something else shown.
pub(super) fn check_routes(wanted: &[Tree]) -> Result<(), PlanError> {
    for above in wanted.iter().filter(|tree| tree.is_writable()) {
        let turns = |tree: &&Tree| {
            let route = tree.route.as_ref();
            route.is_some_and(|route| route.turns_in(above.real_path()))
        };
        if let Some(tree) = wanted.iter().find(turns) {
            return Err(PlanError::WritableLink {
                place: tree.place.clone(),
                path: tree.path.clone(),
                resolved: tree.real_path().clone(),
            });
        }
    }
    Ok(())
}
