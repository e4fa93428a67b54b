//! The task file: opened once, and read up to its size at that time.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// An open file of tasks.
pub struct Source {
    /// The task file's contents.
    pub reader: BufReader<Box<dyn Read + Send>>,
    /// The file, to detect changes while it is read.
    pub watched: Watched,
}

/// Why there are no tasks.
#[derive(Debug, Error)]
pub enum SourceError {
    /// The file does not exist.
    #[error("`{}` does not exist; check the path, or pass the tasks on stdin as `-`", .0.display())]
    Missing(PathBuf),
    /// The path is a directory.
    #[error("`{}` is a directory; name the file of tasks in it", .0.display())]
    Directory(PathBuf),
    /// The file exists but cannot be read.
    #[error("`{name}` cannot be read: {cause}; check its permissions")]
    Unreadable {
        /// The file's name.
        name: String,
        /// The kernel's error.
        cause: io::Error,
    },
}

/// How a file changed while it was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// No visible change.
    None,
    /// The file has grown.
    Grown,
    /// The file has shrunk.
    Shortened,
}

impl Source {
    /// Opens a file; `-` is stdin.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        if path.as_os_str() == "-" {
            return Ok(Self::endless("stdin".to_owned(), io::stdin()));
        }
        let name = path.display().to_string();
        let unreadable = |cause| SourceError::Unreadable {
            name: name.clone(),
            cause,
        };
        let file = File::open(path).map_err(|cause| match cause.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
                SourceError::Missing(path.to_owned())
            }
            _ => unreadable(cause),
        })?;
        let metadata = file.metadata().map_err(unreadable)?;
        if metadata.is_dir() {
            return Err(SourceError::Directory(path.to_owned()));
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

    /// How the file changed since it was opened.
    pub fn change(&self) -> Change {
        let Some((file, before)) = &self.regular else {
            return Change::None;
        };
        match file.metadata().map(|now| now.len().cmp(before)) {
            Ok(Ordering::Greater) => Change::Grown,
            Ok(Ordering::Less) => Change::Shortened,
            Ok(Ordering::Equal) | Err(_) => Change::None,
        }
    }
}
