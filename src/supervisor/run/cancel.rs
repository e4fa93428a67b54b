//! A handle that ends runs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use nix::sys::eventfd::{EfdFlags, EventFd};

/// Cancels a run from any thread; its outcome is then `interrupted`. Clones are the same handle.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<EventFd>);

impl Cancel {
    /// Makes an unused handle.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left (eventfd(2)).
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self(Arc::new(event)))
    }

    /// Ends the runs that have this handle, and those that get it later: a handle works once.
    pub fn cancel(&self) {
        // Fails only after 2^64 calls.
        _ = self.0.write(1);
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
