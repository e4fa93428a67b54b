//! The limits of one worker: its byte quota, and the rates of its operations.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::locked;

/// The byte quota of a worker, for both directions together.
#[derive(Debug)]
pub struct Bytes(AtomicU64);

impl Bytes {
    pub fn new(most: u64) -> Self {
        Self(AtomicU64::new(most))
    }

    /// Returns the number of bytes left.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Charges bytes that were already transferred, which may exceed the rest of the quota.
    pub fn take(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let take = |left: u64| Some(left.saturating_sub(bytes));
        _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
    }
}

/// A rate limit: a burst, then a fixed number of operations per second.
///
/// A guest that exceeds the rate waits. Without a limit, its connections could exhaust the ports of the host, which
/// stay in use for a minute each, and its requests the only thread of the process.
#[derive(Debug)]
pub struct RateLimit {
    interval: Duration,
    burst: u32,
    /// The time at which the whole burst is available again.
    full_at: Mutex<Instant>,
}

impl RateLimit {
    pub fn new(burst: u32, each_second: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / each_second,
            burst,
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits until one operation is within the rate.
    pub async fn acquire(&self) {
        let due = self.take(1, Instant::now());
        if let Some(due) = due {
            sleep_until(due).await;
        }
    }

    /// Charges operations. Returns the time at which the last of them is within the rate, if that time is after `now`.
    pub fn take(&self, operations: usize, now: Instant) -> Option<Instant> {
        let mut full_at = locked(&self.full_at);
        *full_at = (*full_at).max(now) + self.interval.saturating_mul(count(operations));
        let due = full_at.checked_sub(self.interval * self.burst)?;
        (due > now).then_some(due)
    }

    /// Refunds operations that another limit bounds.
    pub fn refund(&self, operations: usize) {
        let mut full_at = locked(&self.full_at);
        let earlier = full_at.checked_sub(self.interval.saturating_mul(count(operations)));
        *full_at = earlier.unwrap_or(*full_at);
    }
}

fn count(operations: usize) -> u32 {
    u32::try_from(operations).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_applies_after_the_burst() {
        let limit = RateLimit::new(10, 100);
        let start = Instant::now() + Duration::from_secs(60);
        for _ in 0..10 {
            assert_eq!(limit.take(1, start), None);
        }
        let later = |milliseconds| Some(start + Duration::from_millis(milliseconds));
        assert_eq!(limit.take(1, start), later(10));
        assert_eq!(limit.take(1, start), later(20));
        // One second later the burst is available again, but no more than that.
        let next = start + Duration::from_secs(1);
        let free = (0..20)
            .take_while(|_| limit.take(1, next).is_none())
            .count();
        assert_eq!(free, 10);
        limit.refund(3);
        assert_eq!(limit.take(2, next), None);
        assert_eq!(limit.take(1, next), Some(next + Duration::from_millis(10)));
    }

    #[test]
    fn quota_stops_at_zero() {
        let bytes = Bytes::new(10);
        bytes.take(4);
        assert_eq!(bytes.left(), 6);
        bytes.take(7);
        assert_eq!(bytes.left(), 0);
    }
}
