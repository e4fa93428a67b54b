//! The inputs that are kept, each in a file of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A kept input.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
    pub bytes: Vec<u8>,
}

/// The inputs of a directory, by their names: the same everywhere.
///
/// # Errors
///
/// When the directory or a file of it cannot be read.
pub fn read(directory: &Path) -> io::Result<Vec<Kept>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_file() {
            let bytes = fs::read(&path)?;
            found.insert(path, bytes);
        }
    }
    let kept = found.into_iter();
    Ok(kept.map(|(path, bytes)| Kept { path, bytes }).collect())
}
