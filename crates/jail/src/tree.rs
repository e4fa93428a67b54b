//! Kills a process tree without a pid namespace.
//!
//! The process that kills the tree is its subreaper (prctl(2), `PR_SET_CHILD_SUBREAPER`), so a process stays a
//! descendant however often it double-forks or calls setsid(2). The remaining problem is that the tree can grow while
//! it is being killed.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpid};

use crate::sys;
use crate::sys::procfs::{self, Stat};

/// The maximum number of searches for new processes before the tree is killed as found. Stopped processes do not fork,
/// so each round finds fewer. The next call handles processes that escape the last round.
const ROUNDS: usize = 64;

/// Kills the processes beneath the caller, except the trees of its children in `spared`.
///
/// Stops processes until a walk finds no new one, and only then kills them, because a fork bomb outruns a killer that
/// takes one process at a time. A process that was forking at that moment may survive. The caller must reap, and call
/// again while any process is left.
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
/// A pid alone does not identify a process: the process may end, and another may get its pid, between reading and
/// acting. The walk therefore opens a pidfd for each process first, and then reads its parent again. The process
/// belongs to the tree if its parent was found by this walk and is still the same process.
fn walk(proc: BorrowedFd, spared: &[Pid], visit: &mut dyn FnMut(BorrowedFd, Pid, &Stat)) {
    let own = getpid();
    let Ok(root) = procfs::stat(proc, own) else {
        return;
    };
    let mut unseen = vec![(own, root.started)];
    while let Some((parent, started)) = unseen.pop() {
        let children = procfs::children(proc, parent);
        if procfs::stat(proc, parent).map(|stat| stat.started) != Ok(started) {
            // The parent has ended, and this process has adopted its children.
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
