//! The clock of guests: it stands while the command is stopped, so that no limit on time runs meanwhile.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
struct Clock {
    /// Since when the clock stands.
    stands_since: Option<Instant>,
    /// How long it has stood before.
    stood: Duration,
}

static CLOCK: Mutex<Clock> = Mutex::new(Clock {
    stands_since: None,
    stood: Duration::ZERO,
});

/// The time of guests. Only comparable with other times of guests.
pub fn now() -> Instant {
    let clock = lock();
    let now = clock.stands_since.unwrap_or_else(Instant::now);
    // The clock has not stood for longer than the process lives.
    now.checked_sub(clock.stood).unwrap_or(now)
}

/// Stops the clock until the value is dropped.
pub(super) struct Standing {
    /// Whether the time counts all the same.
    is_void: bool,
}

impl Standing {
    /// Stops the clock now.
    pub fn begin() -> Self {
        lock().stands_since = Some(Instant::now());
        Self { is_void: false }
    }

    /// Lets the clock go on as if it had never stood.
    pub fn cancel(mut self) {
        self.is_void = true;
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        let mut clock = lock();
        let since = clock.stands_since.take();
        if let Some(since) = since.filter(|_| !self.is_void) {
            clock.stood += since.elapsed();
        }
    }
}

fn lock() -> MutexGuard<'static, Clock> {
    CLOCK.lock().unwrap_or_else(PoisonError::into_inner)
}
