//! Provides poison-tolerant locks, and a condition variable that is free to notify if no thread waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Locks a mutex even if it is poisoned: the thread that panicked has reported the panic itself.
pub fn lock<S>(state: &Mutex<S>) -> MutexGuard<'_, S> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A condition variable whose notifications make no system call if no thread waits.
///
/// A thread that changes the state notifies afterwards, with or without the lock. No wake-up is lost: a waiter that saw
/// the old state was counted before it released the lock.
#[derive(Debug, Default)]
pub struct Waiters {
    changed: Condvar,
    waiting: AtomicUsize,
}

impl Waiters {
    /// Waits for a notification, but no longer than `most`.
    pub fn wait<'a, S>(&self, guard: MutexGuard<'a, S>, most: Duration) -> MutexGuard<'a, S> {
        let mut is_first = true;
        self.wait_while(guard, most, |_| std::mem::take(&mut is_first))
    }

    /// Waits while `condition` holds, but no longer than `most`.
    pub fn wait_while<'a, S>(
        &self,
        guard: MutexGuard<'a, S>,
        most: Duration,
        condition: impl FnMut(&mut S) -> bool,
    ) -> MutexGuard<'a, S> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let waited = self.changed.wait_timeout_while(guard, most, condition);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.changed.notify_one();
        }
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
        }
    }
}
