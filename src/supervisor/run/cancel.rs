//! A handle that ends runs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Cancels a run from any thread; its outcome is then `interrupted`. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<Handle>);

#[derive(Debug)]
struct Handle {
    is_used: AtomicBool,
    /// Readable once the handle is used.
    event: EventFd,
}

impl Cancel {
    /// Makes an unused handle.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left (eventfd(2)).
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        let is_used = AtomicBool::new(false);
        Ok(Self(Arc::new(Handle { is_used, event })))
    }

    /// Ends the runs that have this handle, and those that get it later: a handle works once.
    pub fn cancel(&self) {
        self.0.is_used.store(true, Ordering::Release);
        // Fails only after 2^64 calls.
        _ = self.0.event.write(1);
    }

    /// Whether it was used, in no system call.
    pub(crate) fn is_used(&self) -> bool {
        self.0.is_used.load(Ordering::Acquire)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }
}
