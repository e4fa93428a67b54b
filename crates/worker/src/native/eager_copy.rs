//! Has each fork of a zygote eagerly copy the pages that every worker writes to.
//!
//! To find these pages, a child rehearses what each worker does first. The pages that the child had to copy are those
//! that workers write to.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::wait::waitpid;
use nix::unistd::{pipe2, read, write};

use crate::native::python;
use sandfork_jail::sys::eager_copy::{find_copied, pin};
use sandfork_jail::sys::process::{Fork, SingleThreaded, exit_now, fork, page_size};
use sandfork_jail::sys::uninterrupted;
use sandfork_jail::zygote::Zygote;

/// The maximum number of pages that are copied at each fork. A worker writes to 250 to 450.
const MAX_PAGES: usize = 1024;

/// Pins the pages, and returns how many each fork copies eagerly from here on.
///
/// An error changes nothing: workers copy one page at a time. The causes are that this process may not use io_uring
/// (`kernel.io_uring_disabled`, a container's filter) or may not lock this much memory (`RLIMIT_MEMLOCK`).
pub fn arrange(zygote: &mut Zygote, rehearse: impl FnOnce()) -> Result<usize, Errno> {
    let pagemap = zygote.pagemap.take().ok_or(Errno::ENOENT)?;
    let proc = zygote.proc.as_fd();
    let single = SingleThreaded::count(proc)?;
    let (done, done_writer) = pipe2(OFlag::O_CLOEXEC)?;
    let (release, release_writer) = pipe2(OFlag::O_CLOEXEC)?;
    python::before_fork();
    let forked = fork(&single);
    if let Ok(Fork::Child(_)) = forked {
        drop(release_writer);
        python::after_fork_in_child();
        rehearse();
        _ = write(&done_writer, &[0]);
        // Wait until the parent closes its end: a process's copied pages are visible only while it lives.
        _ = uninterrupted(|| read(&release, &mut [0]));
        exit_now(0)
    }
    python::after_fork_in_parent();
    let Fork::Parent(child) = forked? else {
        return Err(Errno::ECHILD);
    };
    drop(done_writer);
    // Retry, because a preloaded package may have installed a signal handler.
    let copied = match uninterrupted(|| read(&done, &mut [0])) {
        Ok(1) => find_copied(proc, pagemap.as_fd()),
        Ok(_) => Err(Errno::ECHILD),
        Err(errno) => Err(errno),
    };
    drop(release_writer);
    _ = uninterrupted(|| waitpid(child, None));
    let copied = copied?;
    let bytes: usize = copied.iter().map(ExactSizeIterator::len).sum();
    let pages = bytes / usize::try_from(page_size()).map_err(|_| Errno::EOVERFLOW)?;
    if pages > MAX_PAGES {
        return Err(Errno::E2BIG);
    }
    let ring: OwnedFd = pin(&copied)?;
    // The ring lives as long as the zygote. In a worker its number belongs to another descriptor, so it must not be
    // closed.
    std::mem::forget(ring);
    Ok(pages)
}
