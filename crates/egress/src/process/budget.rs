//! What one worker may use: bytes, connections at a time, and how fast it may ask for more.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

use super::locked;

/// The bytes that a worker may still send and receive.
#[derive(Debug)]
pub struct Bytes(AtomicU64);

impl Bytes {
    pub fn new(most: u64) -> Self {
        Self(AtomicU64::new(most))
    }

    /// How many are left.
    pub fn left(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Takes these, which may be more than are left: they have been carried already.
    pub fn take(&self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        let take = |left: u64| Some(left.saturating_sub(bytes));
        _ = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
    }
}

/// How often something may happen: a number at once, and then so many a second.
///
/// A guest that asks faster waits. Each of its connections takes a port of the host for a minute, and each question
/// a turn of the one thread.
#[derive(Debug)]
pub struct Pace {
    interval: Duration,
    burst: u32,
    /// When there will be room for the whole burst again.
    full_at: Mutex<Instant>,
}

impl Pace {
    pub fn new(burst: u32, each_second: u32) -> Self {
        Self {
            interval: Duration::from_secs(1) / each_second,
            burst,
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits for a turn.
    pub async fn turn(&self) {
        let due = self.take(1, Instant::now());
        if let Some(due) = due {
            sleep_until(due).await;
        }
    }

    /// Takes turns. Returns when the last of them is, if that is later.
    pub fn take(&self, turns: usize, now: Instant) -> Option<Instant> {
        let mut full_at = locked(&self.full_at);
        *full_at = (*full_at).max(now) + self.interval.saturating_mul(count(turns));
        let due = full_at.checked_sub(self.interval * self.burst)?;
        (due > now).then_some(due)
    }

    /// Gives turns back that something else limits.
    pub fn give_back(&self, turns: usize) {
        let mut full_at = locked(&self.full_at);
        let earlier = full_at.checked_sub(self.interval.saturating_mul(count(turns)));
        *full_at = earlier.unwrap_or(*full_at);
    }
}

fn count(turns: usize) -> u32 {
    u32::try_from(turns).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_free_and_the_rest_is_paced() {
        let pace = Pace::new(10, 100);
        let start = Instant::now() + Duration::from_secs(60);
        for _ in 0..10 {
            assert_eq!(pace.take(1, start), None);
        }
        let later = |milliseconds| Some(start + Duration::from_millis(milliseconds));
        assert_eq!(pace.take(1, start), later(10));
        assert_eq!(pace.take(1, start), later(20));
        // A second later the burst is there again, and not more.
        let next = start + Duration::from_secs(1);
        let free = (0..20).take_while(|_| pace.take(1, next).is_none()).count();
        assert_eq!(free, 10);
        pace.give_back(3);
        assert_eq!(pace.take(2, next), None);
        assert_eq!(pace.take(1, next), Some(next + Duration::from_millis(10)));
    }

    #[test]
    fn bytes_end() {
        let bytes = Bytes::new(10);
        bytes.take(4);
        assert_eq!(bytes.left(), 6);
        bytes.take(7);
        assert_eq!(bytes.left(), 0);
    }
}
