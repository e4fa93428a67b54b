//! Ending a tree of processes from above, without a pid namespace.
//!
//! Whoever ends it is the tree's subreaper (prctl(2), `PR_SET_CHILD_SUBREAPER`): however often a
//! process forks twice or starts a session, it stays a descendant. What is left is that a tree can
//! grow while it is being killed.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};

use crate::sys;
use crate::sys::procfs::{self, Stat};

/// How often the tree is looked through for more before it is killed as it is. What is stopped forks
/// nothing, so that each round finds fewer; what is left after so many is found by the next call.
const ROUNDS: usize = 64;

/// Kills what is beneath the calling process, but for the trees of its children in `spared`.
///
/// All are stopped first, until nothing new is found, and only then killed: a fork bomb that is
/// killed one process at a time is faster. One that was forking just then may be left, so it is for
/// the caller to reap, and to call again while there is anyone.
pub fn kill_beneath(proc: BorrowedFd, spared: &[Pid]) {
    let mut stopped = BTreeSet::new();
    for _ in 0..ROUNDS {
        let before = stopped.len();
        walk(proc, spared, &mut |handle, pid, stat| {
            if stopped.insert((pid, stat.started)) {
                _ = sys::pidfd::signal(handle, Signal::SIGSTOP);
            }
        });
        if stopped.len() == before {
            break;
        }
    }
    walk(proc, spared, &mut |handle, _, _| {
        // One that is gone already is as good.
        _ = sys::pidfd::signal(handle, Signal::SIGKILL);
    });
}

/// Visits what is beneath the calling process.
///
/// A number alone names nobody: the process may end, and its number be another's, between reading
/// and acting. So each is held by a handle first and looked at again: if its parent is then one
/// that was found here, and that parent itself is still the same, it belongs to the tree.
fn walk(proc: BorrowedFd, spared: &[Pid], visit: &mut dyn FnMut(BorrowedFd, Pid, &Stat)) {
    let own = getpid();
    let Ok(root) = procfs::stat(proc, own) else {
        return;
    };
    let mut unseen = vec![(own, root.started)];
    while let Some((parent, started)) = unseen.pop() {
        let children = procfs::children(proc, parent);
        if procfs::stat(proc, parent).map(|stat| stat.started) != Ok(started) {
            // Ended meanwhile: its children are this process's now.
            continue;
        }
        for child in children
            .into_iter()
            .filter(|child| parent != own || !spared.contains(child))
        {
            if let Ok((handle, stat)) = hold(proc, child)
                && stat.parent == parent
            {
                visit(handle.as_fd(), child, &stat);
                unseen.push((child, stat.started));
            }
        }
    }
}

fn hold(proc: BorrowedFd, pid: Pid) -> Result<(OwnedFd, Stat), Errno> {
    let handle = sys::pidfd::open(pid)?;
    Ok((handle, procfs::stat(proc, pid)?))
}
