//! Locks, and threads that wait for a change of a state that a lock protects.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Takes a lock, also one with which a thread has panicked: that thread has said so itself.
pub fn lock<S>(state: &Mutex<S>) -> MutexGuard<'_, S> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A condition variable whose notifications cost no system call if no thread waits for them.
///
/// A thread that changes the state notifies after that, with or without the lock: a thread that has seen the
/// state before the change is counted before it gives up the lock.
#[derive(Debug, Default)]
pub struct Waiters {
    changed: Condvar,
    waiting: AtomicUsize,
}

impl Waiters {
    /// Waits for a notification, at most so long.
    pub fn wait<'a, S>(&self, guard: MutexGuard<'a, S>, most: Duration) -> MutexGuard<'a, S> {
        let mut is_first = true;
        self.wait_while(guard, most, |_| std::mem::take(&mut is_first))
    }

    /// Waits while the state is so, at most so long.
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

    /// Wakes one of the threads that wait.
    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.changed.notify_one();
        }
    }

    /// Wakes all threads that wait.
    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.changed.notify_all();
        }
    }
}
