//! The corpus's inputs, each in its own file.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// An input of a corpus.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Kept {
    /// The file's path.
    pub path: PathBuf,
    /// The file's contents.
    pub bytes: Vec<u8>,
}

/// Reads the inputs of a directory in order of their names, which is the same on every machine.
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
