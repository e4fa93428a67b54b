//! Rejects writable paths that are not safe: those through which guests could replace files that later starts
//! run or trust, or modules that the caller imports.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::error::Requester;
use super::view::Tree;
use crate::error::Error;
use crate::host::{Host, Route, module_name};
use crate::policy::Policy;

/// Rejects a writable tree in which guests could replace files that later starts run or trust. A read-only mount
/// over such a file would not protect it, because a guest that may write above the mount can rename a parent directory.
/// This also holds for guests of root, because they act as the owner of the trees that they may write to.
pub(super) fn check(trees: &[Tree], host: &Host) -> Result<(), Error> {
    for tree in trees.iter().filter(|tree| tree.is_writable()) {
        let writable = tree.real_path();
        for kept in &host.kept {
            let what = kept.what;
            let problem = if let Some(entry) = kept.route.entry_in(writable) {
                format!(
                    "guests could replace {}, through which later starts find {what}: make only a data directory in it \
                     writable, or move {what} out of it",
                    entry.display()
                )
            } else if writable.starts_with(&kept.route.end) {
                format!(
                    "it is in {}, where later starts find {what}: name a data directory outside of it in \
                     `filesystem.write`",
                    kept.route.end.display()
                )
            } else {
                continue;
            };
            return Err(unwritable(&tree.requester, &tree.path, &problem));
        }
    }
    Ok(())
}

fn unwritable(requester: &Requester, path: &Path, why: &str) -> Error {
    requester.error(path, format!("cannot be writable, because {why}"))
}

/// Packages that the Python client imports, if the caller has them, when it decodes a guest's value.
const FOR_VALUES: [&str; 7] = [
    "PIL", "numpy", "pandas", "polars", "pyarrow", "pytz", "tzdata",
];

/// Rejects a writable path through which guests could replace modules that the caller imports. `imports` are the
/// absolute paths of the caller's `sys.path`, in order.
///
/// A path beneath one of them may be writable, because projects contain their data, unless a module there would shadow
/// another module. Writable paths that do not exist count too, because a guest could create them. `find` resolves an
/// absolute path, and `module_at` returns the file of the module that is imported by a path.
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
            let requester = Requester::Policy(named.origin.clone());
            Err(unwritable(&requester, &named.value, why))
        };
        if let Some(entry) = imports.iter().find_map(|route| route.entry_in(&writable)) {
            return refused(&format!(
                "guests could replace {}, from which the caller imports modules: make only a data directory in it \
                 writable, or remove it from the caller's `sys.path`",
                entry.display()
            ));
        }
        for (index, route) in imports.iter().enumerate() {
            let Some(module) = module_beneath(&route.end, &writable) else {
                continue;
            };
            // Python searches the entries from first to last.
            let mut files = imports[index..]
                .iter()
                .filter_map(|other| module_at(&other.end.join(&module)));
            let shadowed = files.find(|file| !file.starts_with(&writable));
            if shadowed.is_some() || FOR_VALUES.iter().any(|name| module == Path::new(name)) {
                let effect = match shadowed {
                    Some(file) => format!("which would shadow {}", file.display()),
                    None => "with which Sandfork decodes values".to_owned(),
                };
                return refused(&format!(
                    "the caller imports modules from {within}, and guests could make it the module `{}`, {effect}: \
                     rename it, or remove {within} from the caller's `sys.path`",
                    module.to_string_lossy().replace('/', "."),
                    within = route.end.display()
                ));
            }
        }
    }
    Ok(())
}

/// Returns the module that `path` would be in an import from `directory`, as a relative path without the file suffix.
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

/// Rejects a path that leads into a writable tree and out of it through a symbolic link. A guest may have created
/// that link, or could create such a link, so that the sandbox shows another path.
pub(super) fn check_routes(wanted: &[Tree]) -> Result<(), Error> {
    for above in wanted.iter().filter(|tree| tree.is_writable()) {
        let turns = |tree: &&Tree| {
            let route = tree.route.as_ref();
            route.is_some_and(|route| route.turns_in(above.real_path()))
        };
        if let Some(tree) = wanted.iter().find(turns) {
            let problem = format!(
                "leads to {resolved} through a symbolic link in a directory where `filesystem.write` lets guests \
                 create links: name {resolved} if the sandbox should show it",
                resolved = tree.real_path().display()
            );
            return Err(tree.requester.error(&tree.path, problem));
        }
    }
    Ok(())
}
