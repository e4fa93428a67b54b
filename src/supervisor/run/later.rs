//! What would take a processor from a run that somebody waits for, and can be done when it is over.

use std::fmt;
use std::time::{Duration, Instant};

/// Done when it is dropped: when the run is over, or has taken so long that it may go on for minutes.
pub(crate) struct Later<'a> {
    due: Instant,
    act: Box<dyn Fn() + 'a>,
}

/// Longer than a small program takes, and no time that whoever comes next would notice.
const PATIENCE: Duration = Duration::from_millis(5);

impl<'a> Later<'a> {
    /// For a run that begins now.
    pub fn new(now: Instant, act: impl Fn() + 'a) -> Self {
        Self {
            due: now + PATIENCE,
            act: Box::new(act),
        }
    }

    /// When it cannot wait any longer.
    pub fn due(&self) -> Instant {
        self.due
    }

    /// Whether it cannot wait any longer.
    pub fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }
}

impl Drop for Later<'_> {
    fn drop(&mut self) {
        (self.act)();
    }
}

impl fmt::Debug for Later<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let mut later = formatter.debug_struct("Later");
        later.field("due", &self.due()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn it_is_due_after_a_while_and_done_when_it_is_dropped() {
        let (now, done) = (Instant::now(), Cell::new(false));
        let later = Later::new(now, || done.set(true));
        assert!(!later.is_due(now) && later.is_due(now + PATIENCE) && !done.get());
        drop(later);
        assert!(done.get());
    }
}
