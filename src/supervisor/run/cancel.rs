//! A handle that cancels runs and cells.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::waiters::lock;

/// Cancels runs and cells from any thread; their outcome is then `interrupted`. A run that still waits for its
/// [`Admission`](crate::Admission) ends with an error of kind [`Busy`](crate::ErrorKind::Busy). Clones refer to the
/// same handle.
#[derive(Clone, Debug)]
pub struct Cancel(Arc<Handle>);

struct Handle {
    is_used: AtomicBool,
    /// Readable once the handle is used.
    event: EventFd,
    /// The functions that interrupt the cells registered with the handle.
    cells: Mutex<BTreeMap<u64, Box<dyn Fn() + Send>>>,
}

impl Cancel {
    /// Creates an unused handle.
    ///
    /// # Errors
    ///
    /// When the process has no descriptor left (eventfd(2)).
    pub fn new() -> io::Result<Self> {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        Ok(Self(Arc::new(Handle {
            is_used: AtomicBool::new(false),
            event,
            cells: Mutex::default(),
        })))
    }

    /// Cancels the runs and cells that have this handle, and those that get it later: a used handle stays used.
    pub fn cancel(&self) {
        self.0.is_used.store(true, Ordering::Release);
        // Fails only after 2^64 calls.
        _ = self.0.event.write(1);
        for interrupt in lock(&self.0.cells).values() {
            interrupt();
        }
    }

    /// Whether the handle was used. Makes no system call.
    pub fn is_used(&self) -> bool {
        self.0.is_used.load(Ordering::Acquire)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.event.as_fd()
    }

    /// Registers a function that interrupts a cell when the handle is used, until the guard is dropped. If the handle
    /// was used before, the function is called at once.
    pub(crate) fn interrupts(&self, interrupt: impl Fn() + Send + 'static) -> Interrupts<'_> {
        let mut cells = lock(&self.0.cells);
        // `cancel` sets the flag before it locks the cells: either it finds this cell, or the flag is seen here.
        if self.is_used() {
            interrupt();
        }
        let number = cells.last_key_value().map_or(0, |(last, _)| last + 1);
        cells.insert(number, Box::new(interrupt));
        let handle = &self.0;
        Interrupts { handle, number }
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut handle = f.debug_struct("Handle");
        handle
            .field("is_used", &self.is_used)
            .finish_non_exhaustive()
    }
}

/// The registration of a cell with a [`Cancel`] handle. Dropping it removes the cell.
pub(crate) struct Interrupts<'c> {
    handle: &'c Handle,
    number: u64,
}

impl Drop for Interrupts<'_> {
    fn drop(&mut self) {
        lock(&self.handle.cells).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn only_registered_cells_are_interrupted() {
        let cancel = Cancel::new().expect("an eventfd");
        let count = Arc::new(AtomicUsize::new(0));
        let counted = || {
            let count = Arc::clone(&count);
            move || _ = count.fetch_add(1, Ordering::Relaxed)
        };
        let _first = cancel.interrupts(counted());
        drop(cancel.interrupts(counted()));
        cancel.cancel();
        assert_eq!(count.load(Ordering::Relaxed), 1);
        let _late = cancel.interrupts(counted());
        assert_eq!(count.load(Ordering::Relaxed), 2);
    }
}
