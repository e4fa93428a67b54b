//! Reads files that others may have written.

use std::fs::File;
use std::io::{self, Read};

/// Reads a text file of at most this many MiB.
///
/// # Errors
/// If the file is longer, is not UTF-8, or cannot be read.
pub fn whole_text(file: File, most_mib: u64) -> io::Result<String> {
    let longest = most_mib << 20;
    let mut bytes = Vec::new();
    // Read one byte more than allowed to detect a longer file: a truncated text could change its meaning.
    file.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(io::Error::other(format!("longer than {most_mib} MiB")));
    }
    String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8"))
}
