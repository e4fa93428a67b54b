//! Ending a tree of processes from above, without a pid namespace.
//!
//! Whoever ends it is the tree's subreaper (prctl(2), `PR_SET_CHILD_SUBREAPER`): however often a
//! process forks twice or starts a session, it stays a descendant. What is left is that a tree can
//! grow while it is being killed.

use std::os::fd::{AsFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};

use crate::sys;
use crate::sys::procfs::{self, Stat};

/// How often the tree is stopped anew before it is killed as it is. A stopped process forks
/// nothing, so that each round finds fewer; what is left after so many is found by the next call.
const ROUNDS: usize = 64;

/// Kills what is beneath the calling process, but for the trees of its children in `spared`.
///
/// All are stopped first, until nothing new is found, and only then killed: a fork bomb that is
/// killed one process at a time is faster. Reaping is the caller's.
pub fn kill_beneath(proc: BorrowedFd, spared: &[Pid]) {
    for _ in 0..ROUNDS {
        let mut running = 0;
        walk(proc, spared, &mut |handle, stat| {
            // Stopped, traced, dead; the rest may fork.
            if !matches!(stat.state, 'T' | 't' | 'Z' | 'X') {
                running += 1;
                _ = sys::pidfd::signal(handle, Signal::SIGSTOP);
            }
        });
        if running == 0 {
            break;
        }
    }
    walk(proc, spared, &mut |handle, _| {
        // One that is gone already is as good.
        _ = sys::pidfd::signal(handle, Signal::SIGKILL);
    });
}

/// Visits what is beneath the calling process.
///
/// A number alone names nobody: the process may end, and its number be another's, between reading
/// and acting. So each is held by a handle first and looked at again: if its parent is then one
/// that was found here, and that parent itself is still the same, it belongs to the tree.
fn walk(proc: BorrowedFd, spared: &[Pid], visit: &mut dyn FnMut(BorrowedFd, &Stat)) {
    let own = getpid();
    let Ok(root) = procfs::stat(proc, own) else { return };
    let mut unseen = vec![(own, root.started)];
    while let Some((parent, started)) = unseen.pop() {
        let children = procfs::children(proc, parent);
        if procfs::stat(proc, parent).map(|stat| stat.started) != Ok(started) {
            // Ended meanwhile: its children are this process's now.
            continue;
        }
        for child in children.into_iter().filter(|child| parent != own || !spared.contains(child)) {
            if let Ok((handle, stat)) = hold(proc, child)
                && stat.parent == parent
            {
                visit(handle.as_fd(), &stat);
                unseen.push((child, stat.started));
            }
        }
    }
}

fn hold(proc: BorrowedFd, pid: Pid) -> Result<(std::os::fd::OwnedFd, Stat), Errno> {
    let handle = sys::pidfd::open(pid)?;
    Ok((handle, procfs::stat(proc, pid)?))
}
