//! What the guest sees of the host: the trees, and the access to each. Each tree is shown at its
//! host path.

use std::path::{Path, PathBuf};

use super::error::Place;
use super::places::clash;
use super::{kept, wanted};
use crate::error::Error;
use crate::host::{Host, Link, Route};
use crate::policy::{Level, Policy, normalize};
use sandfork_jail::program::{Access, PathAccess, Shown};

/// Why a path would be both writable and a source of executable code.
const WRITABLE_CODE: &str = "is where code is run from, and cannot be writable: name a directory of data in `filesystem.write`";

/// A directory or file of the host.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Tree {
    /// Its path, outside and inside.
    pub path: PathBuf,
    /// The allowed access. A tree with write access is mounted writable.
    pub allow: PathAccess,
    /// How its path is found, if a policy names it.
    pub route: Option<Route>,
    /// The origin of the request to show it.
    pub place: Place,
}

/// What the guest sees of the host. Parents come before the trees in them, and no tree occurs
/// twice.
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

    /// Whether something at, above or beneath a path is shown.
    pub(super) fn touches(&self, path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        let trees = self.trees.iter().map(|tree| &tree.path);
        let mut shown = trees.chain(self.links.iter().map(|link| &link.path));
        shown.any(|shown| path.starts_with(shown) || shown.starts_with(path))
    }

    /// The entries beneath one of the session's own directories: each tree that no other tree there
    /// includes, and the links between them.
    pub(super) fn shown_beneath(&self, own: &Path) -> Vec<Shown> {
        let trees = || self.trees.iter().filter(|tree| tree.path.starts_with(own));
        let brought_along =
            |tree: &Tree| trees().any(|above| above != tree && tree.path.starts_with(&above.path));
        let outermost = trees().filter(|tree| !brought_along(tree));
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

    /// Resolves the sandbox's own links at the start of a path, such as `/lib` on a system with a
    /// merged `/usr`.
    fn through_links(&self, path: &Path) -> PathBuf {
        let found = self.links.iter().find_map(|link| {
            let rest = path.strip_prefix(&link.path).ok()?;
            let parent = link.path.parent().unwrap_or(Path::new("/"));
            Some(normalize(&parent.join(&link.points_at).join(rest)))
        });
        found.unwrap_or_else(|| path.to_owned())
    }

    /// Creates the links from `sys.executable` to the binary that no tree shows.
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
        let (mut trees, behind_links) = sort_out(wanted)?;
        if behind_links.is_empty() {
            return Ok(trees);
        }
        // The targets may belong anywhere in the order, and links may lie in them. No target is a link.
        trees.extend(behind_links);
        wanted = trees;
    }
}

/// The second list has the trees whose path is a link inside another tree. The guest follows the
/// link, so its target must be shown at its real path.
fn sort_out(mut wanted: Vec<Tree>) -> Result<(Vec<Tree>, Vec<Tree>), Error> {
    wanted.sort_by(|a, b| a.path.components().cmp(b.path.components()));
    let mut trees: Vec<Tree> = Vec::new();
    let mut behind_links = Vec::new();
    for mut tree in wanted {
        if let Some(own) = clash(&tree.path) {
            let problem = format!(
                "cannot be shown, because the sandbox has its own {own}: name another path, or copy what is needed to one"
            );
            return Err(tree.place.refuses(&tree.path, problem));
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

/// The nearest tree at or above a path, which is what the guest finds there.
fn covering<'a>(trees: &'a [Tree], path: &Path) -> Option<&'a Tree> {
    trees.iter().rev().find(|tree| path.starts_with(&tree.path))
}

impl Tree {
    /// Its path without links.
    pub(super) fn real_path(&self) -> &PathBuf {
        self.route.as_ref().map_or(&self.path, |route| &route.end)
    }

    /// Whether a rule for another tree holds for this one: both are writable, and the other has it by any path.
    pub(super) fn is_within(&self, other: &Self) -> bool {
        self.is_writable()
            && other.is_writable()
            && self.real_path().starts_with(other.real_path())
            && (self.real_path() != other.real_path() || other.path < self.path)
    }

    pub(super) fn is_writable(&self) -> bool {
        self.allow == PathAccess::ReadWrite
    }

    /// How it is mounted.
    pub(super) fn access(&self) -> Access {
        if self.is_writable() {
            Access::ReadWrite
        } else {
            Access::ReadOnly
        }
    }

    /// Whether a tree beneath this one needs no mount and no rule of its own.
    fn includes(&self, tree: &Self) -> bool {
        self.is_writable() == tree.is_writable()
            && (self.allow == tree.allow || tree.allow == PathAccess::Read)
    }

    /// Merges another tree of the same path.
    fn merge(&mut self, other: &Self) -> Result<(), Error> {
        if self.is_writable() != other.is_writable() {
            let writable = if self.is_writable() { self } else { other };
            return Err(writable.place.refuses(&other.path, WRITABLE_CODE));
        }
        if other.allow == PathAccess::ReadExecute {
            self.allow = other.allow;
        }
        Ok(())
    }
}

/// Nothing that is to be read-only may lie in a writable tree, if it is the policy that asks for it: a guest that may
/// write above a mount can rename what is above it, and the next start finds at that path what the guest left there.
/// Without mounts, nothing protects what the system and the interpreter show there either.
fn check_writable(trees: &[Tree], level: Level) -> Result<(), Error> {
    let is_kept = |tree: &&Tree| {
        !tree.is_writable() && (level == Level::Landlock || matches!(tree.place, Place::Policy(_)))
    };
    for above in trees.iter().filter(|tree| tree.is_writable()) {
        let inside = |tree: &&Tree| {
            tree.real_path().starts_with(above.real_path()) || tree.path.starts_with(&above.path)
        };
        let Some(tree) = trees.iter().filter(is_kept).find(inside) else {
            continue;
        };
        return Err(match &tree.place {
            Place::Policy(_) => {
                let problem = format!(
                    "is to be read-only, and lies in {}, which `filesystem.write` makes writable: remove one of the two",
                    above.real_path().display()
                );
                tree.place.refuses(&tree.path, problem)
            }
            _ => above.place.refuses(&tree.path, WRITABLE_CODE),
        });
    }
    Ok(())
}

/// Without mounts, an unprivileged guest of root must reach the interpreter at its own path.
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

/// A mount has the modes of the host: an unprivileged guest of root cannot enter a closed directory in one. The interpreter
/// may lie behind one that the sandbox makes itself, for what it shows there.
fn check_closed(trees: &[Tree], host: &Host) -> Result<(), Error> {
    let interpreter = &host.interpreter;
    let closed = interpreter.closed.as_ref();
    // A binary that only its owner may read has begun before the guest's user comes.
    let closed = closed.filter(|closed| **closed != interpreter.binary);
    let (Some(closed), Some(_)) = (closed, host.machine.user.drop_to) else {
        return Ok(());
    };
    match trees.iter().find(|tree| closed.starts_with(&tree.path)) {
        Some(tree) if matches!(tree.place, Place::Policy(_)) => {
            let problem = format!(
                "has the interpreter in it, behind {closed}, which the unprivileged user that the guest runs as cannot \
                 enter: name what the guest needs of {closed}",
                closed = closed.display()
            );
            Err(tree.place.refuses(&tree.path, problem))
        }
        _ => Ok(()),
    }
}
