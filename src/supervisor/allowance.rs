//! A token bucket, which bounds how often a guest may cause a cost that it does not pay for.

use std::time::Instant;

/// A token bucket for a resource whose release cannot be observed.
#[derive(Debug)]
pub struct Allowance {
    capacity: f64,
    per_second: f64,
    tokens: f64,
    since: Instant,
}

impl Allowance {
    /// Creates a full bucket of `capacity` units, which refills by `per_second` units each second.
    pub fn new(capacity: u32, per_second: f64, now: Instant) -> Self {
        Self {
            capacity: f64::from(capacity),
            per_second,
            tokens: f64::from(capacity),
            since: now,
        }
    }

    /// Takes one unit. Returns whether one was available.
    pub fn take(&mut self, now: Instant) -> bool {
        let refill = now.saturating_duration_since(self.since).as_secs_f64() * self.per_second;
        self.tokens = (self.tokens + refill).min(self.capacity);
        self.since = now;
        let is_available = self.tokens >= 1.0;
        if is_available {
            self.tokens -= 1.0;
        }
        is_available
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bucket_refills_at_the_given_rate_up_to_its_capacity() {
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
