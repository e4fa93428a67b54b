//! The task file: opened once, and read up to its size at that time.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use crate::cli::failure::Failure;

/// An open file of tasks.
pub struct Source {
    /// The task file's contents.
    pub reader: BufReader<Box<dyn Read + Send>>,
    /// The file, to detect changes while it is read.
    pub watched: Watched,
}

impl Source {
    /// Opens a file; `-` is stdin.
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
            // Lines that are added later are not read: the last one may be half written.
            reader: BufReader::new(Box::new(file.take(size))),
            watched: Watched {
                name,
                regular: Some((regular, size)),
            },
        })
    }

    /// An input without a size: a pipe, a terminal.
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
    /// The file and its size when it was opened, if it has one.
    regular: Option<(File, u64)>,
}

impl Watched {
    /// The size when the file was opened.
    pub fn size(&self) -> Option<u64> {
        self.regular.as_ref().map(|(_, size)| *size)
    }

    /// The size of the file now, beside that when it was opened. What cannot be seen has not changed.
    pub fn size_now(&self) -> Ordering {
        let regular = self.regular.as_ref();
        let now = regular.and_then(|(file, before)| Some(file.metadata().ok()?.len().cmp(before)));
        now.unwrap_or(Ordering::Equal)
    }
}
