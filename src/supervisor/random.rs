//! Bytes that cannot be predicted, and numbers that are not given twice.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

/// So many bytes (random(4)).
pub fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A counter that gives no number twice. It starts at a random number, so that a number from a process that has ended
/// means nothing to the next process. JSON readers that have only floating-point numbers read each exactly.
#[derive(Debug)]
pub struct UniqueIds(AtomicU64);

impl Default for UniqueIds {
    fn default() -> Self {
        Self(AtomicU64::new(RandomState::new().hash_one(()) >> 12))
    }
}

impl UniqueIds {
    /// The next number.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
