//! The file and line of a policy value.

use std::fmt;

/// The origin of a policy value: the file and line that an error names.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Origin {
    /// A path as the user gave it, `built-in NAME`, or `--set`. Empty if the policy is not a file: the key alone then
    /// locates a value.
    pub file: String,
    /// The line, from 1. `None` for `--set`, for a file as a whole, and for a policy that is not a file.
    pub line: Option<u32>,
}

impl Origin {
    /// Creates the origin of a file as a whole.
    pub fn of_file(file: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line: None,
        }
    }

    /// Returns the prefix of an error message: `FILE:LINE: `, or nothing if the policy is not a file.
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

/// A value and its origin.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Located<T> {
    /// The value.
    pub value: T,
    /// The origin.
    pub origin: Origin,
}

impl<T> Located<T> {
    /// Combines a value with its origin.
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }
}
