//! A token bucket, which bounds how often a guest may cause a cost that it does not pay for.

use std::time::Instant;

/// A token bucket for a resource whose release cannot be observed.
#[derive(Debug)]
pub struct Allowance {
    most: f64,
    a_second: f64,
    left: f64,
    since: Instant,
}

impl Allowance {
    /// Creates a full bucket of `most` units, which refills by `a_second` units each second.
    pub fn new(most: u32, a_second: f64, now: Instant) -> Self {
        Self {
            most: f64::from(most),
            a_second,
            left: f64::from(most),
            since: now,
        }
    }

    /// Takes one unit. Returns whether one was available.
    pub fn take(&mut self, now: Instant) -> bool {
        let more = now.saturating_duration_since(self.since).as_secs_f64() * self.a_second;
        self.left = (self.left + more).min(self.most);
        self.since = now;
        let has_one = self.left >= 1.0;
        if has_one {
            self.left -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn units_come_at_a_bounded_rate() {
        let began = Instant::now();
        let mut watches = Allowance::new(32_768, 256.0, began);
        let taken = |watches: &mut Allowance, at| (0..100_000).filter(|_| watches.take(at)).count();
        assert_eq!(taken(&mut watches, began), 32_768);
        assert_eq!(taken(&mut watches, began + Duration::from_secs(2)), 512);
        assert_eq!(
            taken(&mut watches, began + Duration::from_secs(3600)),
            32_768
        );
    }
}
