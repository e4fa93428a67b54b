//! Tries the jail's whole chain of namespace and mount calls in a disposable child.
//!
//! The caller may be one thread of a large server. The child is therefore created by a raw clone(2) and runs only raw
//! system calls: no allocation, no lock, no libc function with state, no `pthread_atfork` handler. It reports through
//! one shared page, and the parent waits for it by its pidfd, so that neither a SIGCHLD handler nor a `waitpid(-1)` of
//! the embedding program ever sees it.

mod chain;
mod step;

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::{NonNull, null, null_mut};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, pthread_sigmask};

pub use step::ChainStep;

/// The ids that the child switches to, and how it maps them.
#[derive(Clone, Copy, Debug)]
pub struct ChainIdentity {
    /// The unprivileged uid and gid to switch to first, as root; `None` for an ordinary user.
    pub drop_to: Option<(u32, u32)>,
    /// The uid and gid on the host that are mapped: `drop_to`, or the user's own.
    pub outside: (u32, u32),
    /// The uid and gid inside the user namespace.
    pub inside: (u32, u32),
}

/// The step at which the chain failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChainFailure {
    /// The step that failed.
    pub step: ChainStep,
    /// The errno, or 0 if the kernel killed the child instead.
    pub errno: i32,
}

/// The shared result, written by the child and its own child, and read by the parent once both have ended.
#[repr(C)]
struct Report {
    /// The number of the current step; `DONE` at the end.
    step: AtomicU32,
    /// The errno of the current step, if it failed.
    errno: AtomicI32,
}

const DONE: u32 = u32::MAX;

impl Report {
    fn read(&self) -> Result<(), ChainFailure> {
        let reached = self.step.load(Ordering::Acquire);
        if reached == DONE {
            return Ok(());
        }
        let step = ChainStep::from_number(reached).unwrap_or(ChainStep::Clone);
        Err(ChainFailure {
            step,
            errno: self.errno.load(Ordering::Acquire),
        })
    }
}

/// A page with a [`Report`], shared with the children.
struct SharedReport {
    page: NonNull<Report>,
}

impl SharedReport {
    fn new() -> Result<Self, Errno> {
        // SAFETY: a fresh anonymous mapping; no existing memory is touched.
        let page = unsafe {
            libc::mmap(
                null_mut(),
                size_of::<Report>(),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        if page == libc::MAP_FAILED {
            return Err(Errno::last());
        }
        Ok(Self {
            page: NonNull::new(page.cast()).ok_or(Errno::ENOMEM)?,
        })
    }

    fn get(&self) -> &Report {
        // SAFETY: the mapping lives as long as `self`, is page-aligned and begins as zeros, which are a valid `Report`.
        // Other processes write to it only through its atomics.
        unsafe { self.page.as_ref() }
    }
}

impl Drop for SharedReport {
    fn drop(&mut self) {
        // SAFETY: exactly the mapping made in `new`; no reference to it outlives `self`.
        unsafe { libc::munmap(self.page.as_ptr().cast(), size_of::<Report>()) };
    }
}

/// The data that the child needs, prepared so that it does not allocate.
struct Prepared<'a> {
    report: &'a Report,
    drop_to: Option<(u32, u32)>,
    uid_map: CString,
    gid_map: CString,
}

/// The deadline for the chain. A chain that takes longer hangs on something that would also hang the jail.
const DEADLINE_MS: u16 = 5_000;

/// Tries the chain. The outer error means that the child could not be prepared.
pub fn try_chain(identity: ChainIdentity) -> Result<Result<(), ChainFailure>, Errno> {
    let shared = SharedReport::new()?;
    let map = |inside: u32, outside: u32| {
        CString::new(format!("{inside} {outside} 1")).map_err(|_| Errno::EINVAL)
    };
    let prepared = Prepared {
        report: shared.get(),
        drop_to: identity.drop_to,
        uid_map: map(identity.inside.0, identity.outside.0)?,
        gid_map: map(identity.inside.1, identity.outside.1)?,
    };
    // Block signals across the clone: a handler of the embedding program must not run in the child.
    let mut before = SigSet::empty();
    pthread_sigmask(
        SigmaskHow::SIG_SETMASK,
        Some(&SigSet::all()),
        Some(&mut before),
    )?;
    let child = clone_child(&prepared);
    let unblocked = pthread_sigmask(SigmaskHow::SIG_SETMASK, Some(&before), None);
    // Wait for the child first, so that it is reaped even if another call fails.
    let waited = child.map(|pidfd| wait_for(&pidfd));
    unblocked?;
    match waited {
        Ok(waited) => waited.map(|()| shared.get().read()),
        Err(errno) => Ok(Err(ChainFailure {
            step: ChainStep::Clone,
            errno: errno as i32,
        })),
    }
}

/// Clones the child, in which this function never returns.
fn clone_child(prepared: &Prepared) -> Result<OwnedFd, Errno> {
    let mut pidfd: RawFd = -1;
    // SAFETY: without CLONE_VM and with a null stack this is a fork: the child runs on its own copy of this stack. Its
    // exit signal is 0, so no process is notified when it ends. The kernel writes the pidfd, close-on-exec, into
    // `pidfd`, which is live. The child runs only `chain::run`, which never returns and upholds the restrictions in the
    // module's documentation.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone,
            libc::CLONE_PIDFD as libc::c_ulong,
            0_usize,
            &raw mut pidfd,
            0_usize,
            0_usize,
        )
    };
    if pid == 0 {
        chain::run(prepared);
    }
    Errno::result(pid)?;
    // SAFETY: clone succeeded, so the kernel has just created this descriptor and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(pidfd) })
}

fn wait_for(pidfd: &OwnedFd) -> Result<(), Errno> {
    let mut polled = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
    let ready = loop {
        match poll(&mut polled, PollTimeout::from(DEADLINE_MS)) {
            Err(Errno::EINTR) => {}
            other => break other,
        }
    };
    if ready != Ok(1) {
        // SAFETY: integers and a null `siginfo_t`, which means an ordinary kill(2).
        unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                pidfd.as_raw_fd(),
                libc::SIGKILL,
                null::<libc::siginfo_t>(),
                0,
            );
        }
    }
    loop {
        // SAFETY: the raw call allows a null `infop` and `rusage`; the rest are integers. `__WALL` because the child's
        // exit signal is not SIGCHLD.
        let waited = Errno::result(unsafe {
            libc::syscall(
                libc::SYS_waitid,
                libc::P_PIDFD,
                pidfd.as_raw_fd(),
                null_mut::<libc::siginfo_t>(),
                libc::WEXITED | libc::__WALL,
                null_mut::<libc::rusage>(),
            )
        });
        match waited {
            Err(Errno::EINTR) => {}
            // A thread that waits for every process with `__WALL` has reaped the child first. It is gone either way.
            Ok(_) | Err(Errno::ECHILD) => return ready.map(drop),
            Err(errno) => return Err(errno),
        }
    }
}
