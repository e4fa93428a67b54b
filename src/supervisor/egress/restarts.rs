//! Limits how often an operation that should not fail is retried.

use std::time::{Duration, Instant};

/// The maximum number of retries within [`SPAN`]. More failures than that have a lasting cause.
const MAX: usize = 5;
/// The period over which retries are counted.
const SPAN: Duration = Duration::from_secs(60);

/// The times of recent retries.
#[derive(Debug, Default)]
pub(super) struct Restarts(Vec<Instant>);

impl Restarts {
    /// Records a retry now, and returns whether the limit allows it.
    pub(super) fn take_one(&mut self, now: Instant) -> bool {
        let is_recent = |earlier: &Instant| now.saturating_duration_since(*earlier) < SPAN;
        self.0.retain(is_recent);
        let may = self.0.len() < MAX;
        if may {
            self.0.push(now);
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_limited_per_span() {
        let (mut restarts, start) = (Restarts::default(), Instant::now());
        let taken = |restarts: &mut Restarts, at| (0..9).filter(|_| restarts.take_one(at)).count();
        assert_eq!(taken(&mut restarts, start), MAX);
        assert_eq!(taken(&mut restarts, start + SPAN / 2), 0);
        assert_eq!(taken(&mut restarts, start + SPAN), MAX);
    }
}
