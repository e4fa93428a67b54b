//! Allocates host uids for the workers of root: each live worker of this process has a different one.
//!
//! The kernel counts some resources per host user, across all namespaces: epoll(7) watches, pipe pages, descriptors in
//! flight in sockets. Workers that shared a uid could exhaust these for each other.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::waiters::lock;
use sandfork_jail::program::UidRange;

/// The uids in use by workers of this process.
static TAKEN: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

/// A uid that is reserved for one worker until this value is dropped.
#[derive(Debug)]
pub struct WorkerUid(pub u32);

impl WorkerUid {
    /// Reserves a uid that no worker of this process has. The search starts at a point that depends on the process and
    /// the time, so that two supervisors on one host seldom choose the same uid.
    ///
    /// Returns `None` if all uids are taken.
    pub fn take(range: UidRange) -> Option<Self> {
        let mut taken = lock(&TAKEN);
        let start = start_position(std::process::id(), nanoseconds(), range.count);
        let uids = (0..range.count).map(|step| range.first + (start + step) % range.count);
        let free = uids.into_iter().find(|uid| taken.insert(*uid))?;
        Some(Self(free))
    }
}

impl Drop for WorkerUid {
    fn drop(&mut self) {
        let mut taken = lock(&TAKEN);
        taken.remove(&self.0);
    }
}

/// Returns a number below `count`, by Fibonacci hashing (Knuth, TAOCP 6.4), which maps close inputs to distant outputs.
fn start_position(process: u32, time: u64, count: u32) -> u32 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mixed = (u64::from(process) << 40 ^ time).wrapping_mul(GOLDEN) >> 32;
    u32::try_from(mixed % u64::from(count.max(1))).unwrap_or(0)
}

fn nanoseconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::from(since.subsec_nanos()) ^ (since.as_secs() << 30)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uids_are_unique_until_the_range_is_exhausted() {
        let range = UidRange {
            first: 7_000,
            count: 64,
        };
        let all: Vec<WorkerUid> = (0..64).filter_map(|_| WorkerUid::take(range)).collect();
        let numbers: BTreeSet<u32> = all.iter().map(|uid| uid.0).collect();
        assert_eq!(numbers, (7_000..7_064).collect());
        assert!(WorkerUid::take(range).is_none());
        drop(all);
        assert!(WorkerUid::take(range).is_some());
    }

    #[test]
    fn start_positions_are_spread() {
        let positions: BTreeSet<u32> = (0..1000)
            .map(|pid| start_position(pid, 1, 480_000))
            .collect();
        assert!(positions.len() > 990, "{}", positions.len());
    }
}
