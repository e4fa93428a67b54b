//! Collects the trees that the system, the interpreter and the policy request, before they are arranged.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::error::Requester;
use super::paths::{ETC, Purpose, clash, named_by};
use super::view::Tree;
use crate::error::Error;
use crate::host::{
    Host, HostUser, Link, PathFact, PathKind, Reach, Route, SystemPath, SystemPathKind,
};
use crate::policy::{AddedPackages, Level, Located, Policy, SystemFiles};
use sandfork_jail::program::PathAccess;

/// The directory of the packages that were added to running sessions, beneath the environments.
const ADDED: &str = "added/store";

/// Returns all requested trees, in no particular order.
pub(super) fn trees(policy: &Policy, host: &Host) -> Result<Vec<Tree>, Error> {
    let system = policy.filesystem.system;
    let mut wanted = system_trees(host, system);
    wanted.extend(interpreter_trees(host, system));
    if policy.python.added_packages == AddedPackages::Shown
        && let Some(environments) = &host.environments
    {
        let added = environments.join(ADDED);
        wanted.push(tree(added, run_or_read(system), Requester::Interpreter));
    }
    for (purpose, located) in named_by(policy) {
        wanted.push(named_tree(host, purpose, located, system)?);
    }
    Ok(wanted)
}

fn tree(path: PathBuf, allow: PathAccess, requester: Requester) -> Tree {
    Tree {
        path,
        allow,
        route: None,
        requester,
    }
}

/// Returns the access to a read-only tree. Programs run only from the directories of the system and the
/// interpreter and from paths that the policy shows read-only, never from a path that a guest can write to.
fn run_or_read(system: SystemFiles) -> PathAccess {
    match system {
        SystemFiles::Programs => PathAccess::ReadExecute,
        SystemFiles::Libraries => PathAccess::Read,
    }
}

/// Returns whether a system path holds programs, or files that only programs read.
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
                // /etc contains links and data. Programs run from the targets of the links.
                SystemPathKind::Directory if found.path.starts_with(ETC) => PathAccess::Read,
                SystemPathKind::Directory => run_or_read(system),
                SystemPathKind::File => PathAccess::Read,
                SystemPathKind::Symlink(_) => return None,
            };
            Some(tree(found.path.clone(), allow, Requester::System))
        })
        .collect()
}

/// Returns the top-level links, as on a system with a merged `/usr`, and the links in `/usr` if `/usr` is not
/// shown as a whole.
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
    // `sys.executable` must exist even if the guest may not run it.
    paths.push(interpreter.binary.clone());
    match system {
        SystemFiles::Programs => {
            paths.extend_from_slice(&interpreter.programs);
            paths.extend(interpreter.venv.clone());
        }
        // The interpreter detects its virtual environment by this file.
        SystemFiles::Libraries => {
            paths.extend(interpreter.venv.iter().map(|venv| venv.join("pyvenv.cfg")));
        }
    }
    paths
        .into_iter()
        .map(|path| tree(path, run_or_read(system), Requester::Interpreter))
        .collect()
}

/// Returns the tree of the script that is about to run, if the sandbox can show the script at its host path.
/// The guest receives the script's text in any case, so a script that cannot be shown is not an error.
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
    // Without mounts, a guest of root reaches only files that every user can reach.
    let is_hidden = level == Level::Landlock
        && host.machine.user.drop_to.is_some()
        && *reach != Reach::Everyone;
    let is_shown = !is_writable && !is_hidden && clash(path).is_none();
    is_shown.then(|| Tree {
        path: path.clone(),
        allow: run_or_read(policy.filesystem.system),
        route: Some(route.clone()),
        requester: Requester::Script,
    })
}

fn named_tree(
    host: &Host,
    purpose: Purpose,
    named: &Located<PathBuf>,
    system: SystemFiles,
) -> Result<Tree, Error> {
    let allow = match purpose {
        Purpose::ImportFrom => PathAccess::Read,
        Purpose::Read | Purpose::Project => run_or_read(system),
        Purpose::Write => PathAccess::ReadWrite,
    };
    let route = Some(resolve(&host.paths, host.machine.user, purpose, named)?.clone());
    Ok(Tree {
        path: named.value.clone(),
        allow,
        route,
        requester: Requester::Policy(named.origin.clone()),
    })
}

/// Returns an error for each path of a policy that cannot be shown.
pub(super) fn refused_paths<'a>(
    policy: &'a Policy,
    user: HostUser,
    paths: &'a BTreeMap<PathBuf, PathFact>,
) -> impl Iterator<Item = Error> + 'a {
    named_by(policy).filter_map(move |(purpose, named)| resolve(paths, user, purpose, named).err())
}

/// Returns the host's resolution of a policy path, or the error if it cannot be shown.
fn resolve<'a>(
    paths: &'a BTreeMap<PathBuf, PathFact>,
    user: HostUser,
    purpose: Purpose,
    named: &Located<PathBuf>,
) -> Result<&'a Route, Error> {
    let path = named.value.display();
    let refused = |problem: &str| {
        let (lead, key) = (named.origin.lead(), purpose.key());
        Error::host(format!("{lead}{key}: {path} {problem}"))
    };
    let missing = |cause: &str| {
        refused(&format!(
            "cannot be found ({cause}): create it, or remove it from the policy"
        ))
    };
    match paths.get(&named.value) {
        None => Err(missing("the path was not looked up")),
        Some(PathFact::Unreachable(errno)) => Err(missing(&errno.to_string())),
        Some(PathFact::Found {
            kind: PathKind::Special,
            ..
        }) => Err(refused(
            "is a device, a socket or a FIFO, but must be a directory or a regular file",
        )),
        Some(PathFact::Found {
            kind: PathKind::File,
            ..
        }) if matches!(purpose, Purpose::ImportFrom | Purpose::Project) => {
            Err(refused("is a file, but must be a directory of modules"))
        }
        Some(PathFact::Found {
            reach: Reach::Root, ..
        }) if matches!(purpose, Purpose::ImportFrom | Purpose::Project)
            && user.drop_to.is_some() =>
        {
            Err(refused(&format!(
                "is accessible only to root, but root's guests run as another user: make it and its contents readable, \
                 for example by `chmod -R go+rX {path}`"
            )))
        }
        Some(PathFact::Found { route, .. }) => Ok(route),
    }
}
