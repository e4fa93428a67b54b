//! Opens the task file once, and reads up to its size at that time.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::cli::failure::Failure;

/// An open task file.
pub struct Source {
    /// A reader of the task file's contents.
    pub reader: BufReader<Box<dyn Read + Send>>,
    /// The file, for detecting changes while it is read.
    pub watched: Watched,
}

impl Source {
    /// Opens a file, or stdin for `-`.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self::endless("stdin".to_owned(), io::stdin()));
        }
        let name = path.display().to_string();
        let unusable = |why: &str| Failure::Usage(format!("`{name}` {why}"));
        let unreadable =
            |cause: io::Error| unusable(&format!("cannot be read: {cause}; check its permissions"));
        let file = File::open(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                unusable("does not exist; check the path, or pass the tasks on stdin as `-`")
            }
            _ => unreadable(cause),
        })?;
        let metadata = file.metadata().map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(unusable("is a directory; name the file of tasks in it"));
        }
        if !metadata.is_file() {
            return Ok(Self::endless(name, file));
        }
        let regular = file.try_clone().map_err(unreadable)?;
        let size = metadata.len();
        Ok(Self {
            // Lines that are appended later are not read: the last one may be incomplete.
            reader: BufReader::new(Box::new(file.take(size))),
            watched: Watched {
                name,
                regular: Some((regular, size)),
            },
        })
    }

    /// Creates a source without a size: a pipe or a terminal.
    fn endless(name: String, reader: impl Read + Send + 'static) -> Self {
        Self {
            reader: BufReader::new(Box::new(reader)),
            watched: Watched {
                name,
                regular: None,
            },
        }
    }
}

/// A file that is being read.
#[derive(Debug)]
pub struct Watched {
    /// The file's name in messages.
    pub name: String,
    /// The file and its size at opening, if it is a regular file.
    regular: Option<(File, u64)>,
}

impl Watched {
    /// Returns the file's size when it was opened.
    pub fn size(&self) -> Option<u64> {
        self.regular.as_ref().map(|(_, size)| *size)
    }

    /// Compares the file's current size with its size at opening. A file that cannot be checked counts as unchanged.
    pub fn size_now(&self) -> Ordering {
        let regular = self.regular.as_ref();
        let now = regular.and_then(|(file, before)| Some(file.metadata().ok()?.len().cmp(before)));
        now.unwrap_or(Ordering::Equal)
    }
}
