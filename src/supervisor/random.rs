//! Bytes that cannot be predicted.

use std::fs::File;
use std::io::{self, Read};

/// So many bytes (random(4)).
pub fn random<const LENGTH: usize>() -> io::Result<[u8; LENGTH]> {
    let mut bytes = [0; LENGTH];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
