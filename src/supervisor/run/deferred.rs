//! Defers work that would compete for a processor with a run that a caller waits for.

use std::fmt;
use std::time::{Duration, Instant};

/// Work that runs when this value is dropped. The owner drops it when the run is over, or when the run has taken so
/// long that it may continue for minutes.
pub(crate) struct Deferred<'a> {
    /// The latest time at which the work must start.
    pub due: Instant,
    act: Box<dyn Fn() + 'a>,
}

/// The longest delay: longer than a small program takes, and too short for the next caller to notice.
const MAX_DELAY: Duration = Duration::from_millis(5);

impl<'a> Deferred<'a> {
    /// Defers `act` for a run that starts now.
    pub fn new(now: Instant, act: impl Fn() + 'a) -> Self {
        Self {
            due: now + MAX_DELAY,
            act: Box::new(act),
        }
    }

    /// Whether the work must start now.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }
}

impl Drop for Deferred<'_> {
    fn drop(&mut self) {
        (self.act)();
    }
}

impl fmt::Debug for Deferred<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let mut later = formatter.debug_struct("Deferred");
        later.field("due", &self.due).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn deferred_work_runs_on_drop() {
        let (now, done) = (Instant::now(), Cell::new(false));
        let later = Deferred::new(now, || done.set(true));
        assert!(!later.is_due(now) && later.is_due(now + MAX_DELAY) && !done.get());
        drop(later);
        assert!(done.get());
    }
}
