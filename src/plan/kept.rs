//! What no guest may write to, because later starts run it or believe it, or the caller imports it.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::error::Place;
use super::view::Tree;
use crate::error::Error;
use crate::host::{Host, Route, module_name};
use crate::policy::Policy;

/// Refuses a writable tree by which guests could exchange what later starts run or believe. A mount over it would protect
/// nothing: a guest that may write above it can rename what is above it. Root's guests too: they take the place of the
/// owner of what they may write to.
pub(super) fn check(trees: &[Tree], host: &Host) -> Result<(), Error> {
    for tree in trees.iter().filter(|tree| tree.is_writable()) {
        let writable = tree.real_path();
        for kept in &host.kept {
            let what = kept.what;
            let problem = if let Some(entry) = kept.route.entry_in(writable) {
                format!(
                    "guests could exchange {}, by which later starts find {what}: make only a directory of data in it \
                     writable, or move {what} out of it",
                    entry.display()
                )
            } else if writable.starts_with(&kept.route.end) {
                format!(
                    "it lies in {}, where later starts find {what}: name a directory of data outside of it in \
                     `filesystem.write`",
                    kept.route.end.display()
                )
            } else {
                continue;
            };
            return Err(unwritable(&tree.place, &tree.path, &problem));
        }
    }
    Ok(())
}

fn unwritable(place: &Place, path: &Path, why: &str) -> Error {
    place.refuses(path, format!("cannot be writable, because {why}"))
}

/// Packages that the Python client imports when it reads a value of a guest, if the caller has them.
const FOR_VALUES: [&str; 7] = [
    "PIL", "numpy", "pandas", "polars", "pyarrow", "pytz", "tzdata",
];

/// Refuses a writable path by which guests could exchange what the caller imports from these absolute paths, in their
/// order. A path beneath one may be writable, because a project has its data in it, unless a module there would precede
/// another one. Those that do not exist count, because a guest could make them. `find` has the way of an absolute path,
/// and `module_at` the file of the module that is imported by a path.
pub fn check_imports(
    policy: &Policy,
    imports: &[PathBuf],
    mut find: impl FnMut(&Path) -> Route,
    mut module_at: impl FnMut(&Path) -> Option<PathBuf>,
) -> Result<(), Error> {
    let write = &policy.filesystem.write;
    if write.is_empty() {
        return Ok(());
    }
    let imports: Vec<Route> = imports.iter().map(|path| find(path)).collect();
    for named in write {
        let writable = find(&named.value).end;
        let refused = |why: &str| {
            let place = Place::Policy(named.origin.clone());
            Err(unwritable(&place, &named.value, why))
        };
        if let Some(entry) = imports.iter().find_map(|route| route.entry_in(&writable)) {
            return refused(&format!(
                "guests could exchange {}, from which the caller imports modules: make only a directory of data in it \
                 writable, or take it out of the caller's `sys.path`",
                entry.display()
            ));
        }
        for (index, route) in imports.iter().enumerate() {
            let Some(module) = module_beneath(&route.end, &writable) else {
                continue;
            };
            // Python looks in the entries from first to last.
            let mut files = imports[index..]
                .iter()
                .filter_map(|other| module_at(&other.end.join(&module)));
            let shadowed = files.find(|file| !file.starts_with(&writable));
            if shadowed.is_some() || FOR_VALUES.iter().any(|name| module == Path::new(name)) {
                let instead = match shadowed {
                    Some(file) => format!("in place of {}", file.display()),
                    None => "with which Sandfork reads values".to_owned(),
                };
                return refused(&format!(
                    "the caller imports modules from {within}, and guests could make it the module `{}` {instead}: give \
                     it another name, or take {within} out of the caller's `sys.path`",
                    module.to_string_lossy().replace('/', "."),
                    within = route.end.display()
                ));
            }
        }
    }
    Ok(())
}

/// The module that a path would be for an import from this directory, as a relative path without the file's suffix.
fn module_beneath(directory: &Path, path: &Path) -> Option<PathBuf> {
    let beneath = path.strip_prefix(directory).ok()?;
    let module = match module_name(beneath.file_name()?) {
        Some(name) => beneath.with_file_name(name),
        None => beneath.to_owned(),
    };
    let is_identifier = |part: &OsStr| {
        let part = part.to_string_lossy();
        !part.starts_with(|first: char| first.is_ascii_digit())
            && part.chars().all(|one| one == '_' || one.is_alphanumeric())
    };
    module.iter().all(is_identifier).then_some(module)
}

/// Refuses a path that leads through a writable tree and out of it again: a guest may have put the link there, or could
/// put one, to have something else shown.
pub(super) fn check_routes(wanted: &[Tree]) -> Result<(), Error> {
    for above in wanted.iter().filter(|tree| tree.is_writable()) {
        let turns = |tree: &&Tree| {
            let route = tree.route.as_ref();
            route.is_some_and(|route| route.turns_in(above.real_path()))
        };
        if let Some(tree) = wanted.iter().find(turns) {
            let problem = format!(
                "leads to {resolved}, by a link where `filesystem.write` lets guests make links: name {resolved}, if that \
                 is what the sandbox is to show",
                resolved = tree.real_path().display()
            );
            return Err(tree.place.refuses(&tree.path, problem));
        }
    }
    Ok(())
}
