//! Where a value of a policy was written.

use std::fmt;

/// Where a value of a policy was written: a file and a line, so that an error can name them.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Origin {
    /// A path as the user gave it, `built-in NAME`, or `--set`. Empty if the policy is no file, so that only its keys tell
    /// where a value is.
    pub file: String,
    /// The line, from 1. `None` for `--set`, for a file as a whole, and for a policy that is no file.
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

    /// What stands before a sentence that names the key.
    pub fn lead(&self) -> String {
        if self.file.is_empty() {
            return String::new();
        }
        format!("{self}: ")
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.file.is_empty() {
            return f.write_str("the policy");
        }
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
