//! The trees that the system, the interpreter and the policy request, before they are arranged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::Place;
use super::places::{ETC, Use, clash, named_by};
use super::view::Tree;
use crate::error::Error;
use crate::host::{
    Host, HostUser, Link, PathFact, PathKind, Reach, Route, SystemPath, SystemPathKind,
};
use crate::policy::{AddedPackages, Level, Located, Policy, SystemFiles};
use sandfork_jail::program::PathAccess;

/// Where the packages are that were added to running sessions, beneath the environments.
const ADDED: &str = "added/store";

/// All requested trees, in no particular order.
pub(super) fn trees(policy: &Policy, host: &Host) -> Result<Vec<Tree>, Error> {
    let system = policy.filesystem.system;
    let mut wanted = system_trees(host, system);
    wanted.extend(interpreter_trees(host, system));
    if policy.python.added_packages == AddedPackages::Shown
        && let Some(environments) = &host.environments
    {
        let added = environments.join(ADDED);
        wanted.push(tree(added, run_or_read(system), Place::Interpreter));
    }
    for (purpose, located) in named_by(policy) {
        wanted.push(named_tree(host, purpose, located, system)?);
    }
    Ok(wanted)
}

fn tree(path: PathBuf, allow: PathAccess, place: Place) -> Tree {
    Tree {
        path,
        allow,
        route: None,
        place,
    }
}

/// Programs run only from paths that the host owns: the system's and the interpreter's own
/// directories and the paths that the policy shows read-only. They never run from a path that a
/// guest can write to.
fn run_or_read(system: SystemFiles) -> PathAccess {
    match system {
        SystemFiles::Programs => PathAccess::ReadExecute,
        SystemFiles::Libraries => PathAccess::Read,
    }
}

/// System paths that hold programs, or what only programs read.
fn is_for_programs(path: &Path) -> bool {
    let of_programs = ["/usr", "/bin", "/sbin", "/etc/alternatives"];
    of_programs.iter().any(|known| path == Path::new(known)) || SystemPath::is_of_java(path)
}

fn shown(host: &Host, system: SystemFiles) -> impl Iterator<Item = &SystemPath> {
    host.system
        .iter()
        .filter(move |found| system == SystemFiles::Programs || !is_for_programs(&found.path))
}

fn system_trees(host: &Host, system: SystemFiles) -> Vec<Tree> {
    shown(host, system)
        .filter_map(|found| {
            let allow = match found.kind {
                // /etc contains links and data: a link's target runs from its own path.
                SystemPathKind::Directory if found.path.starts_with(ETC) => PathAccess::Read,
                SystemPathKind::Directory => run_or_read(system),
                SystemPathKind::File => PathAccess::Read,
                SystemPathKind::Symlink(_) => return None,
            };
            Some(tree(found.path.clone(), allow, Place::System))
        })
        .collect()
}

/// Top-level links, as on a system with a merged `/usr`, and those in `/usr` if it is not shown
/// whole.
pub(super) fn system_links(host: &Host, system: SystemFiles) -> Vec<Link> {
    shown(host, system)
        .filter(|found| system == SystemFiles::Libraries || !found.path.starts_with("/usr"))
        .filter_map(|found| match &found.kind {
            SystemPathKind::Symlink(points_at) => Some(Link {
                path: found.path.clone(),
                points_at: points_at.clone(),
            }),
            SystemPathKind::Directory | SystemPathKind::File => None,
        })
        .collect()
}

fn interpreter_trees(host: &Host, system: SystemFiles) -> Vec<Tree> {
    let interpreter = &host.interpreter;
    let mut paths = interpreter.libraries.clone();
    // sys.executable must exist even if no program may run it.
    paths.push(interpreter.binary.clone());
    match system {
        SystemFiles::Programs => {
            paths.extend_from_slice(&interpreter.programs);
            paths.extend(interpreter.venv.clone());
        }
        // The interpreter detects its environment by this file.
        SystemFiles::Libraries => {
            paths.extend(interpreter.venv.iter().map(|venv| venv.join("pyvenv.cfg")));
        }
    }
    paths
        .into_iter()
        .map(|path| tree(path, run_or_read(system), Place::Interpreter))
        .collect()
}

/// The script that is about to run, at its own path, if the sandbox can show it there. Its text goes
/// to the guest in any case, so a script that cannot be shown is no error.
pub(super) fn script_tree(policy: &Policy, host: &Host, level: Level) -> Option<Tree> {
    let path = policy.python.script.as_ref()?;
    let Some(PathFact::Found {
        kind: PathKind::File,
        route,
        reach,
    }) = host.paths.get(path)
    else {
        return None;
    };
    let mut writable = policy.filesystem.write.iter();
    let is_writable = writable.any(|write| {
        let real = match host.paths.get(&write.value) {
            Some(PathFact::Found { route, .. }) => &route.end,
            _ => &write.value,
        };
        route.entry_in(real).is_some()
    });
    // Without mounts, the guest reaches only what any user can reach.
    let is_hidden = level == Level::Landlock
        && host.machine.user.drop_to.is_some()
        && *reach != Reach::Everyone;
    let is_shown = !is_writable && !is_hidden && clash(path).is_none();
    is_shown.then(|| Tree {
        path: path.clone(),
        allow: run_or_read(policy.filesystem.system),
        route: Some(route.clone()),
        place: Place::Script,
    })
}

fn named_tree(
    host: &Host,
    purpose: Use,
    named: &Located<PathBuf>,
    system: SystemFiles,
) -> Result<Tree, Error> {
    let allow = match purpose {
        Use::ImportFrom => PathAccess::Read,
        Use::Read | Use::Project => run_or_read(system),
        Use::Write => PathAccess::ReadWrite,
    };
    let route = Some(resolve(&host.paths, host.machine.user, purpose, named)?.clone());
    Ok(Tree {
        path: named.value.clone(),
        allow,
        route,
        place: Place::Policy(named.origin.clone()),
    })
}

/// The reason to refuse each path of a policy that cannot be shown.
pub(super) fn refused_paths<'a>(
    policy: &'a Policy,
    user: HostUser,
    paths: &'a BTreeMap<PathBuf, PathFact>,
) -> impl Iterator<Item = Error> + 'a {
    named_by(policy).filter_map(move |(purpose, named)| resolve(paths, user, purpose, named).err())
}

/// How the host found a policy's path, or the reason to refuse it.
fn resolve<'a>(
    paths: &'a BTreeMap<PathBuf, PathFact>,
    user: HostUser,
    purpose: Use,
    named: &Located<PathBuf>,
) -> Result<&'a Route, Error> {
    let path = named.value.display();
    let refused = |problem: &str| {
        let (place, key) = (named.origin.lead(), purpose.key());
        Error::host(format!("{place}{key}: {path} {problem}"))
    };
    let missing = |cause: &str| {
        refused(&format!(
            "cannot be found ({cause}): create it, or remove it from the policy"
        ))
    };
    match paths.get(&named.value) {
        None => Err(missing("the host was not asked about it")),
        Some(PathFact::Unreachable(errno)) => Err(missing(&errno.to_string())),
        Some(PathFact::Found {
            kind: PathKind::Special,
            ..
        }) => Err(refused(
            "is a device, a socket or a fifo, and a directory or a regular file is needed here",
        )),
        Some(PathFact::Found {
            kind: PathKind::File,
            ..
        }) if matches!(purpose, Use::ImportFrom | Use::Project) => Err(refused(
            "is a file, and a directory of modules is needed here",
        )),
        Some(PathFact::Found {
            reach: Reach::Root, ..
        }) if matches!(purpose, Use::ImportFrom | Use::Project) && user.drop_to.is_some() => {
            Err(refused(&format!(
                "is root's alone, and root's guests are another user: let others read it and what is in it, as by \
                 `chmod -R go+rX {path}`"
            )))
        }
        Some(PathFact::Found { route, .. }) => Ok(route),
    }
}
