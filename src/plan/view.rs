//! Computes the host trees that the guest sees, and the access to each. Each tree is shown at its host path.

use std::path::{Path, PathBuf};

use super::error::Requester;
use super::paths::clash;
use super::{kept, wanted};
use crate::error::Error;
use crate::host::{Host, Link, Route};
use crate::policy::{Level, Policy, normalize};
use sandfork_jail::program::{Access, PathAccess, Shown};

/// The error for a path that would be both writable and a source of executable code.
const WRITABLE_CODE: &str =
    "contains code to run, so it cannot be writable: name a data directory in `filesystem.write`";

/// A directory or file of the host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Tree {
    /// The path, on the host and in the sandbox.
    pub path: PathBuf,
    /// The allowed access. A tree with write access is mounted writable.
    pub allow: PathAccess,
    /// The resolution of the path, if a policy names it.
    pub route: Option<Route>,
    /// The source of the request to show the tree.
    pub requester: Requester,
}

/// The host trees that the guest sees, without duplicates. Parents precede the trees in them.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct View {
    pub trees: Vec<Tree>,
    pub links: Vec<Link>,
}

impl View {
    pub(super) fn new(policy: &Policy, host: &Host, level: Level) -> Result<Self, Error> {
        check_reach(host, level)?;
        let mut view = Self {
            trees: Vec::new(),
            links: wanted::system_links(host, policy.filesystem.system),
        };
        let mut wanted = wanted::trees(policy, host)?;
        wanted.extend(wanted::script_tree(policy, host, level));
        kept::check_routes(&wanted)?;
        for tree in &mut wanted {
            tree.path = view.through_links(&tree.path);
        }
        view.trees = arrange(wanted)?;
        check_writable(&view.trees, level)?;
        kept::check(&view.trees, host)?;
        check_closed(&view.trees, host)?;
        view.link_interpreter(host);
        Ok(view)
    }

    /// Returns whether a tree or link at, above or beneath a path is shown.
    pub(super) fn touches(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        let trees = self.trees.iter().map(|tree| &tree.path);
        let mut shown = trees.chain(self.links.iter().map(|link| &link.path));
        shown.any(|shown| path.starts_with(shown) || shown.starts_with(path))
    }

    /// Returns the entries beneath one of the session's private directories: the outermost trees there, and
    /// the links.
    pub(super) fn shown_beneath(&self, own: &Path) -> Vec<Shown> {
        let trees = || self.trees.iter().filter(|tree| tree.path.starts_with(own));
        let is_nested =
            |tree: &Tree| trees().any(|above| above != tree && tree.path.starts_with(&above.path));
        let outermost = trees().filter(|tree| !is_nested(tree));
        let trees = outermost.map(|tree| Shown::Tree {
            target: tree.path.clone(),
            access: tree.access(),
        });
        let links = self
            .links
            .iter()
            .filter(|link| link.path.starts_with(own))
            .map(|link| Shown::Symlink {
                target: link.path.clone(),
                points_at: link.points_at.clone(),
            });
        trees.chain(links).collect()
    }

    /// Resolves the sandbox's symbolic links at the start of a path, such as `/lib` on a system with a merged
    /// `/usr`.
    fn through_links(&self, path: &Path) -> PathBuf {
        let found = self.links.iter().find_map(|link| {
            let rest = path.strip_prefix(&link.path).ok()?;
            let parent = link.path.parent().unwrap_or(Path::new("/"));
            Some(normalize(&parent.join(&link.points_at).join(rest)))
        });
        found.unwrap_or_else(|| path.to_owned())
    }

    /// Adds the links on the path from `sys.executable` to the binary that no tree shows.
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

/// Sorts parents first, removes duplicates, and removes trees that a tree above already shows.
fn arrange(mut wanted: Vec<Tree>) -> Result<Vec<Tree>, Error> {
    loop {
        let (mut trees, behind_links) = arrange_once(wanted)?;
        if behind_links.is_empty() {
            return Ok(trees);
        }
        // Targets may belong anywhere in the order and contain other links, but are never links themselves.
        trees.extend(behind_links);
        wanted = trees;
    }
}

/// Arranges the trees, except for those whose path is a link inside another tree. The second list has the
/// targets of these links: the guest follows the links, so the targets must be shown at their real paths.
fn arrange_once(mut wanted: Vec<Tree>) -> Result<(Vec<Tree>, Vec<Tree>), Error> {
    wanted.sort_by(|a, b| a.path.components().cmp(b.path.components()));
    let mut trees: Vec<Tree> = Vec::new();
    let mut behind_links = Vec::new();
    for mut tree in wanted {
        if let Some(own) = clash(&tree.path) {
            let problem = format!(
                "cannot be shown, because the sandbox has its own {own}: name another path, or copy what is needed to \
                 one"
            );
            return Err(tree.requester.error(&tree.path, problem));
        }
        if let Some(same) = trees.last_mut().filter(|last| last.path == tree.path) {
            same.merge(&tree)?;
            continue;
        }
        let above = covering(&trees, &tree.path);
        match tree.route.take() {
            Some(route) if above.is_some() && route.end != tree.path => {
                behind_links.push(Tree {
                    path: route.end,
                    ..tree
                });
            }
            _ if above.is_some_and(|above| above.includes(&tree)) => {}
            route => trees.push(Tree { route, ..tree }),
        }
    }
    Ok((trees, behind_links))
}

/// Returns the nearest tree at or above a path, which determines what the guest sees there.
fn covering<'a>(trees: &'a [Tree], path: &Path) -> Option<&'a Tree> {
    trees.iter().rev().find(|tree| path.starts_with(&tree.path))
}

impl Tree {
    /// Returns the path with all symbolic links resolved.
    pub(super) fn real_path(&self) -> &PathBuf {
        self.route.as_ref().map_or(&self.path, |route| &route.end)
    }

    /// Returns whether the Landlock rule of another tree covers this one: both are writable, and the real path of this
    /// tree is in the other.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.is_writable()
            && other.is_writable()
            && self.real_path().starts_with(other.real_path())
            && (self.real_path() != other.real_path() || other.path < self.path)
    }

    pub(super) fn is_writable(&self) -> bool {
        self.allow == PathAccess::ReadWrite
    }

    /// Returns the access with which the tree is mounted.
    pub(super) fn access(&self) -> Access {
        if self.is_writable() {
            Access::ReadWrite
        } else {
            Access::ReadOnly
        }
    }

    /// Returns whether a tree beneath this one needs no separate mount and rule.
    fn includes(&self, tree: &Self) -> bool {
        self.is_writable() == tree.is_writable()
            && (self.allow == tree.allow || tree.allow == PathAccess::Read)
    }

    /// Merges another tree of the same path.
    fn merge(&mut self, other: &Self) -> Result<(), Error> {
        if self.is_writable() != other.is_writable() {
            let writable = if self.is_writable() { self } else { other };
            return Err(writable.requester.error(&other.path, WRITABLE_CODE));
        }
        if other.allow == PathAccess::ReadExecute {
            self.allow = other.allow;
        }
        Ok(())
    }
}

/// Rejects read-only trees of the policy inside writable trees: a guest that may write above a mount can rename its
/// parent directory, and the next start would show what the guest left at that path. Without mounts, trees of the
/// system and the interpreter have no protection in a writable tree and are rejected too.
fn check_writable(trees: &[Tree], level: Level) -> Result<(), Error> {
    let is_protected = |tree: &&Tree| {
        !tree.is_writable()
            && (level == Level::Landlock || matches!(tree.requester, Requester::Policy(_)))
    };
    for above in trees.iter().filter(|tree| tree.is_writable()) {
        let inside = |tree: &&Tree| {
            tree.real_path().starts_with(above.real_path()) || tree.path.starts_with(&above.path)
        };
        let Some(tree) = trees.iter().filter(is_protected).find(inside) else {
            continue;
        };
        return Err(match &tree.requester {
            Requester::Policy(_) => {
                let problem = format!(
                    "is to be read-only, but is in {}, which `filesystem.write` makes writable: remove one of the two",
                    above.real_path().display()
                );
                tree.requester.error(&tree.path, problem)
            }
            _ => above.requester.error(&tree.path, WRITABLE_CODE),
        });
    }
    Ok(())
}

/// Rejects, at a level without mounts, an interpreter that an unprivileged guest of root cannot reach at its host path.
fn check_reach(host: &Host, level: Level) -> Result<(), Error> {
    let is_closed = host.interpreter.closed.is_some();
    if level == Level::Landlock && host.machine.user.drop_to.is_some() && is_closed {
        return Err(Error::host(format!(
            "the interpreter {} cannot be reached by the unprivileged user that the guest runs as at level \
             `landlock`: install one where every user can run it, such as /usr/bin/python3",
            host.interpreter.binary.display()
        )));
    }
    Ok(())
}

/// Rejects a tree of the policy that contains the interpreter behind a directory which the unprivileged guest of root
/// cannot enter: mounted trees keep the modes of the host. Without such a tree, the sandbox creates that directory
/// itself, with modes that let the guest enter it.
fn check_closed(trees: &[Tree], host: &Host) -> Result<(), Error> {
    let interpreter = &host.interpreter;
    let closed = interpreter.closed.as_ref();
    // A binary that only its owner may read is no obstacle: it is executed before the switch to the guest's user.
    let closed = closed.filter(|closed| **closed != interpreter.binary);
    let (Some(closed), Some(_)) = (closed, host.machine.user.drop_to) else {
        return Ok(());
    };
    match trees.iter().find(|tree| closed.starts_with(&tree.path)) {
        Some(tree) if matches!(tree.requester, Requester::Policy(_)) => {
            let problem = format!(
                "contains the interpreter behind {closed}, which the unprivileged user that the guest runs as cannot \
                 enter: name only the paths in {closed} that the guest needs",
                closed = closed.display()
            );
            Err(tree.requester.error(&tree.path, problem))
        }
        _ => Ok(()),
    }
}
