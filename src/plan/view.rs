//! What of the host the guest sees: which trees, and what may be done in them. Each is shown at
//! its own path.

use std::path::{Component, Path, PathBuf};

use super::error::{Place, PlanError};
use super::places::{Use, clash, named_by};
use crate::host::{Host, PathFact, PathKind, Reach, SystemPath, SystemPathKind};
use crate::jail::program::PathAccess;
use crate::policy::{Level, Located, Origin, Policy, SystemFiles};

/// A directory or file of the host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Tree {
    /// Where it is, outside and inside.
    pub path: PathBuf,
    /// What may be done there; what may be written to is mounted writable.
    pub allow: PathAccess,
    /// Where it really is, if a policy names it by a path with links in it.
    resolved: Option<PathBuf>,
    place: Place,
}

/// A symbolic link that the sandbox makes itself.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Link {
    /// Where.
    pub path: PathBuf,
    /// What it says.
    pub points_at: PathBuf,
}

/// What the guest sees of the host. Trees come parents first, and none is there twice.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct View {
    pub trees: Vec<Tree>,
    pub links: Vec<Link>,
}

impl View {
    pub(super) fn new(policy: &Policy, host: &Host, level: Level) -> Result<Self, PlanError> {
        check_reach(host, level)?;
        let system = policy.filesystem().system;
        let mut view = Self {
            trees: Vec::new(),
            links: system_links(host, system),
        };
        let mut wanted = system_trees(host, system);
        wanted.extend(interpreter_trees(host, system));
        for (purpose, located) in named_by(policy) {
            wanted.push(named_tree(host, purpose, located)?);
        }
        for tree in &mut wanted {
            tree.path = view.through_links(&tree.path);
        }
        view.trees = arrange(wanted)?;
        check_writable(&view.trees, level)?;
        view.link_interpreter(host);
        Ok(view)
    }

    /// Follows the sandbox's own links at the start of a path, as `/lib` where `/usr` is merged.
    fn through_links(&self, path: &Path) -> PathBuf {
        let found = self.links.iter().find_map(|link| {
            let rest = path.strip_prefix(&link.path).ok()?;
            let parent = link.path.parent().unwrap_or(Path::new("/"));
            Some(normal(&parent.join(&link.points_at).join(rest)))
        });
        found.unwrap_or_else(|| path.to_owned())
    }

    /// Makes those links from `sys.executable` to the binary that no tree shows.
    fn link_interpreter(&mut self, host: &Host) {
        for link in &host.interpreter.links {
            let path = self.through_links(&link.path);
            if covering(&self.trees, &path).is_none() {
                self.links.push(Link {
                    path,
                    points_at: link.points_at.clone(),
                });
            }
        }
    }
}

/// Parents first, each once, and nothing that a tree above shows already.
fn arrange(wanted: Vec<Tree>) -> Result<Vec<Tree>, PlanError> {
    let (trees, behind_links) = sort_out(wanted)?;
    if behind_links.is_empty() {
        return Ok(trees);
    }
    // What the links lead to may belong anywhere in the order.
    let all = trees.into_iter().chain(behind_links).collect();
    sort_out(all).map(|(trees, _)| trees)
}

/// The second list is of trees whose path is a link inside another tree: the guest follows the
/// link, so what it leads to has to be shown where it really is.
fn sort_out(mut wanted: Vec<Tree>) -> Result<(Vec<Tree>, Vec<Tree>), PlanError> {
    wanted.sort_by(|a, b| a.path.components().cmp(b.path.components()));
    let mut trees: Vec<Tree> = Vec::new();
    let mut behind_links = Vec::new();
    for mut tree in wanted {
        if let Some(own) = clash(&tree.path) {
            return Err(PlanError::Clash {
                place: tree.place,
                path: tree.path,
                own,
            });
        }
        if let Some(same) = trees.last_mut().filter(|last| last.path == tree.path) {
            same.merge(tree)?;
            continue;
        }
        let above = covering(&trees, &tree.path);
        match tree.resolved.take() {
            Some(resolved) if above.is_some() && resolved != tree.path => {
                behind_links.push(Tree {
                    path: resolved,
                    ..tree
                });
            }
            _ if above.is_some_and(|above| above.includes(&tree)) => {}
            resolved => trees.push(Tree { resolved, ..tree }),
        }
    }
    Ok((trees, behind_links))
}

/// The nearest tree at or above a path: what the guest finds there.
fn covering<'a>(trees: &'a [Tree], path: &Path) -> Option<&'a Tree> {
    trees.iter().rev().find(|tree| path.starts_with(&tree.path))
}

impl Tree {
    fn of_system(path: &Path, allow: PathAccess) -> Self {
        Self {
            path: path.to_owned(),
            allow,
            resolved: None,
            place: Place::System,
        }
    }

    fn of_interpreter(path: PathBuf, allow: PathAccess) -> Self {
        Self {
            path,
            allow,
            resolved: None,
            place: Place::Interpreter,
        }
    }

    pub(super) fn is_writable(&self) -> bool {
        self.allow == PathAccess::ReadWrite
    }

    /// Whether a tree beneath this one needs no mount and no rule of its own.
    fn includes(&self, tree: &Self) -> bool {
        self.is_writable() == tree.is_writable()
            && (self.allow == tree.allow || tree.allow == PathAccess::Read)
    }

    /// Takes in another tree of the same path.
    fn merge(&mut self, other: Self) -> Result<(), PlanError> {
        if self.is_writable() != other.is_writable() {
            let writable = if self.is_writable() {
                self.place.clone()
            } else {
                other.place
            };
            return Err(PlanError::WritableCode {
                place: writable,
                path: other.path,
            });
        }
        if other.allow == PathAccess::ReadExecute {
            self.allow = other.allow;
        }
        Ok(())
    }
}

/// Without mounts nothing keeps a tree beneath a writable one from being written to.
fn check_writable(trees: &[Tree], level: Level) -> Result<(), PlanError> {
    let inside_writable = |tree: &&Tree| {
        let above = trees.iter().find(|above| {
            above.is_writable() && above.path != tree.path && tree.path.starts_with(&above.path)
        });
        above.is_some() && !tree.is_writable()
    };
    match trees
        .iter()
        .find(inside_writable)
        .filter(|_| level == Level::Landlock)
    {
        Some(tree) => Err(PlanError::WritableCode {
            place: tree.place.clone(),
            path: tree.path.clone(),
        }),
        None => Ok(()),
    }
}

/// Without mounts, an unprivileged guest of root's must reach the interpreter where it is.
fn check_reach(host: &Host, level: Level) -> Result<(), PlanError> {
    let closed = host.interpreter.reach == Reach::NotEveryone;
    if level == Level::Landlock && host.machine.user.is_root() && closed {
        return Err(PlanError::InterpreterOutOfReach {
            path: host.interpreter.binary.clone(),
        });
    }
    Ok(())
}

/// Programs run from the system's and the interpreter's own directories only.
fn run_or_read(system: SystemFiles) -> PathAccess {
    match system {
        SystemFiles::Programs => PathAccess::ReadExecute,
        SystemFiles::Libraries => PathAccess::Read,
    }
}

/// System paths that hold programs rather than libraries and data.
const PROGRAMS: [&str; 4] = ["/usr", "/bin", "/sbin", "/etc/alternatives"];

fn shown(host: &Host, system: SystemFiles) -> impl Iterator<Item = &SystemPath> {
    host.system.iter().filter(move |found| {
        system == SystemFiles::Programs || PROGRAMS.iter().all(|path| found.path != Path::new(path))
    })
}

fn system_trees(host: &Host, system: SystemFiles) -> Vec<Tree> {
    shown(host, system)
        .filter_map(|found| match found.kind {
            SystemPathKind::Directory => Some(Tree::of_system(&found.path, run_or_read(system))),
            SystemPathKind::File => Some(Tree::of_system(&found.path, PathAccess::Read)),
            SystemPathKind::Symlink { .. } => None,
        })
        .collect()
}

/// Links at the top, as a merged `/usr` has them, and those in `/usr` where it is not shown whole.
fn system_links(host: &Host, system: SystemFiles) -> Vec<Link> {
    shown(host, system)
        .filter(|found| system == SystemFiles::Libraries || !found.path.starts_with("/usr"))
        .filter_map(|found| match &found.kind {
            SystemPathKind::Symlink { points_at } => Some(Link {
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
    // sys.executable has to exist even where nothing may run it.
    paths.push(interpreter.binary.clone());
    match system {
        SystemFiles::Programs => {
            paths.extend_from_slice(&interpreter.programs);
            paths.extend(interpreter.venv.clone());
        }
        // The interpreter knows its environment by this file.
        SystemFiles::Libraries => {
            paths.extend(interpreter.venv.iter().map(|venv| venv.join("pyvenv.cfg")));
        }
    }
    paths
        .into_iter()
        .map(|path| Tree::of_interpreter(path, run_or_read(system)))
        .collect()
}

fn named_tree(host: &Host, purpose: Use, named: &Located<PathBuf>) -> Result<Tree, PlanError> {
    let allow = match purpose {
        Use::ImportFrom | Use::Read => PathAccess::Read,
        Use::Write => PathAccess::ReadWrite,
    };
    let resolved = Some(resolve(host, purpose, &named.value, &named.origin)?.to_owned());
    Ok(Tree {
        path: named.value.clone(),
        allow,
        resolved,
        place: Place::Policy(named.origin.clone()),
    })
}

/// What the host found at a policy's path: its place without links, or why it will not do.
fn resolve<'a>(
    host: &'a Host,
    purpose: Use,
    path: &Path,
    origin: &Origin,
) -> Result<&'a Path, PlanError> {
    let missing = |cause: String| PlanError::PathMissing {
        origin: origin.clone(),
        path: path.to_owned(),
        cause,
    };
    let unfit = |found, needed| PlanError::PathKind {
        origin: origin.clone(),
        path: path.to_owned(),
        found,
        needed,
    };
    match host.paths.get(path) {
        None => Err(missing("the host was not asked about it".to_owned())),
        Some(PathFact::Unreachable { errno }) => Err(missing(errno.to_string())),
        Some(PathFact::Found {
            kind: PathKind::Special,
            ..
        }) => Err(unfit(
            "a device, a socket or a fifo",
            "a directory or a regular file",
        )),
        Some(PathFact::Found {
            kind: PathKind::File,
            ..
        }) if purpose == Use::ImportFrom => Err(unfit("a file", "a directory of modules")),
        Some(PathFact::Found { resolved, .. }) => Ok(resolved),
    }
}

/// Without `.` and `..`, as text.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}
