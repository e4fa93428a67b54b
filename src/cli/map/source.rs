//! The file that tasks come from: opened once, and read as it was then.

use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use thiserror::Error;

/// An open file of tasks.
pub struct Source {
    /// What is read.
    pub reader: BufReader<Box<dyn Read + Send>>,
    /// What keeps an eye on it meanwhile.
    pub watched: Watched,
}

/// Why there are no tasks.
#[derive(Debug, Error)]
pub enum SourceError {
    /// There is no such file.
    #[error("`{}` does not exist; check the path, or pass the tasks on stdin as `-`", .0.display())]
    Missing(PathBuf),
    /// A directory.
    #[error("`{}` is a directory; name the file of tasks in it", .0.display())]
    Directory(PathBuf),
    /// It is there and cannot be read.
    #[error("`{name}` cannot be read: {cause}; check its permissions")]
    Unreadable {
        /// The file.
        name: String,
        /// As the kernel says.
        cause: io::Error,
    },
}

/// What became of a file while it was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// Nothing, as far as can be seen.
    None,
    /// It has become longer.
    Grown,
    /// It has become shorter.
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
            // What is added later is not begun: its last line may be half written.
            reader: BufReader::new(Box::new(file.take(size))),
            watched: Watched {
                name,
                regular: Some((regular, size)),
            },
        })
    }

    /// What has no size: a pipe, a terminal.
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
    /// What messages call it.
    pub name: String,
    /// The file and its size when it was opened, where it has one.
    regular: Option<(File, u64)>,
}

impl Watched {
    /// Its size when it was opened.
    pub fn size(&self) -> Option<u64> {
        self.regular.as_ref().map(|(_, size)| *size)
    }

    /// What has become of it since it was opened.
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
