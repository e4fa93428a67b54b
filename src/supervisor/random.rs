//! Random bytes and unique ids.

use std::fs::File;
use std::hash::{BuildHasher, RandomState};
use std::io::{self, Read};
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns `LENGTH` random bytes (random(4)).
pub fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A counter of unique ids. It starts at a random number, so that an id from a process that has ended is not valid in
/// the next process. Ids have at most 52 bits at the start, so that JSON parsers with floating-point numbers read them
/// exactly.
#[derive(Debug)]
pub struct UniqueIds(AtomicU64);

impl Default for UniqueIds {
    fn default() -> Self {
        Self(AtomicU64::new(RandomState::new().hash_one(()) >> 12))
    }
}

impl UniqueIds {
    /// Returns the next id.
    pub fn next(&self) -> u64 {
        self.0.fetch_add(1, Ordering::Relaxed)
    }
}
