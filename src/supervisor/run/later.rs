//! What would take a processor from a run that somebody waits for, and can be done when it is over.

use std::fmt;
use std::time::{Duration, Instant};

/// Done when it is dropped, with the run, or when the run has taken this long: it may go on for minutes.
pub(crate) struct Later<'a> {
    due: Instant,
    act: Option<Box<dyn FnOnce() + 'a>>,
}

/// Longer than a small program takes, and no time that whoever comes next would notice.
const PATIENCE: Duration = Duration::from_millis(5);

impl<'a> Later<'a> {
    pub fn new(called: Instant, act: impl FnOnce() + 'a) -> Self {
        Self {
            due: called + PATIENCE,
            act: Some(Box::new(act)),
        }
    }

    /// When it cannot wait any longer, if it has not been done.
    pub fn due(&self) -> Option<Instant> {
        self.act.as_ref().map(|_| self.due)
    }

    pub fn look(&mut self, now: Instant) {
        if now >= self.due {
            self.act();
        }
    }

    fn act(&mut self) {
        if let Some(act) = self.act.take() {
            act();
        }
    }
}

impl Drop for Later<'_> {
    fn drop(&mut self) {
        self.act();
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
    fn it_is_done_once_when_it_is_due_or_dropped() {
        let called = Instant::now();
        let done = Cell::new(0);
        let mut later = Later::new(called, || done.set(done.get() + 1));
        later.look(called);
        assert_eq!((done.get(), later.due()), (0, Some(called + PATIENCE)));
        later.look(called + PATIENCE);
        assert_eq!((done.get(), later.due()), (1, None));
        drop(later);
        assert_eq!(done.get(), 1);
        drop(Later::new(called, || done.set(7)));
        assert_eq!(done.get(), 7);
    }
}
