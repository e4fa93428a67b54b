//! Where a value of a policy was written.

use std::fmt;

/// Where a value of a policy was written: a file and a line, so that an error can name them.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Origin {
    /// A path as the user gave it, `built-in NAME`, or `--set`.
    pub file: String,
    /// The line, from 1. `None` for `--set` and for a file as a whole.
    pub line: Option<u32>,
}

impl Origin {
    /// A file as a whole.
    pub fn of_file(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}", self.file),
            None => f.write_str(&self.file),
        }
    }
}

/// A value and where it was written.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// Where it was written.
    pub origin: Origin,
}

impl<T> Located<T> {
    /// Combines a value with its origin.
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }
}
