//! How often something is tried again that should not fail.

use std::time::{Duration, Instant};

/// What fails more often within [`SPAN`] is not tried again: something makes it fail.
const MOST: usize = 5;
/// See [`MOST`].
const SPAN: Duration = Duration::from_secs(60);

/// When it was tried again.
#[derive(Debug, Default)]
pub(super) struct Restarts(Vec<Instant>);

impl Restarts {
    /// Whether it may be tried again now.
    pub(super) fn take_one(&mut self, now: Instant) -> bool {
        let is_recent = |earlier: &Instant| now.saturating_duration_since(*earlier) < SPAN;
        self.0.retain(is_recent);
        let may = self.0.len() < MOST;
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
    fn only_so_many_are_taken_within_a_span() {
        let (mut restarts, start) = (Restarts::default(), Instant::now());
        let taken = |restarts: &mut Restarts, at| (0..9).filter(|_| restarts.take_one(at)).count();
        assert_eq!(taken(&mut restarts, start), MOST);
        assert_eq!(taken(&mut restarts, start + SPAN / 2), 0);
        assert_eq!(taken(&mut restarts, start + SPAN), MOST);
    }
}
