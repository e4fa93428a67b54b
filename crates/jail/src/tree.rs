//! Ending a tree of processes from above, without a pid namespace.
//!
//! The process that ends the tree is its subreaper (prctl(2), `PR_SET_CHILD_SUBREAPER`). However
//! often a process forks twice or starts a session, it stays a descendant. The remaining problem is
//! that a tree can grow while it is being killed.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};

use crate::sys;
use crate::sys::procfs::{self, Stat};

/// How often the tree is searched for more processes before it is killed as it is. A stopped process
/// forks nothing, so each round finds fewer. The next call finds what is left after these rounds.
const ROUNDS: usize = 64;

/// Kills the processes beneath the caller, except the trees of its children in `spared`.
///
/// It first stops processes until it finds no new one, and only then kills them, because a fork bomb
/// outruns a killer that takes one process at a time. A process that was forking at that moment may
/// survive. The caller must reap, and call again while any process is left.
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
        // A process that is already gone needs no signal.
        _ = sys::pidfd::signal(handle, Signal::SIGKILL);
    });
}

/// Visits the processes beneath the caller.
///
/// A number alone does not identify a process: the process may end, and another may get its number,
/// between reading and acting. So the walk first opens a handle on each process and then reads its
/// parent again. The process belongs to the tree if its parent was found here and is itself still
/// the same process.
fn walk(proc: BorrowedFd, spared: &[Pid], visit: &mut dyn FnMut(BorrowedFd, Pid, &Stat)) {
    let own = getpid();
    let Ok(root) = procfs::stat(proc, own) else {
        return;
    };
    let mut unseen = vec![(own, root.started)];
    while let Some((parent, started)) = unseen.pop() {
        let children = procfs::children(proc, parent);
        if procfs::stat(proc, parent).map(|stat| stat.started) != Ok(started) {
            // It has ended; this process has adopted its children.
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
