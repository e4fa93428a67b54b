//! Paths in a guest's work directory.

use std::ffi::CString;
use std::fmt;
use std::path::Path;

use crate::error::{Cause, Error, ErrorKind};
use sandfork_jail::program::WORK;

/// The maximum length of a name in bytes (`NAME_MAX`).
const LONGEST_NAME: usize = 255;
/// The maximum length of a path in bytes, without the terminating NUL (`PATH_MAX`).
const LONGEST_PATH: usize = 4095;

/// A path beneath a work directory. Parsed lexically: `..` removes the preceding name, and no link is followed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct GuestPath {
    /// The names, outermost first.
    pub(super) names: Vec<String>,
}

/// Why a text is not a path in a work directory.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path leads out of the directory.
    #[error(
        "`{path}` is not in the session's work directory: name it relative to that, or beneath {root}"
    )]
    Elsewhere {
        /// The path as given.
        path: String,
        /// The path at which the guest sees the directory.
        root: String,
    },
    /// The path names the directory itself.
    #[error("`{0}` names the work directory itself: name a file in it")]
    NoName(String),
    /// The path contains a NUL byte.
    #[error("`{}` contains a NUL byte, which a file name cannot", .0.escape_debug())]
    ZeroByte(String),
    /// The path or one of its names is longer than the kernel allows. Holds the beginning of the path.
    #[error("`{0}...` is too long: a name has at most {LONGEST_NAME} bytes, a path {LONGEST_PATH}")]
    TooLong(String),
}

impl Cause for PathError {
    fn kind(&self) -> ErrorKind {
        ErrorKind::Request
    }
}

impl GuestPath {
    /// Parses the path of a file: relative to the work directory, or beneath `/work`, where most
    /// guests see it.
    ///
    /// # Errors
    ///
    /// If the path leads out of the directory, names the work directory itself, or cannot exist. Of kind
    /// [`Request`](ErrorKind::Request).
    pub fn of_file(text: &str) -> Result<Self, Error> {
        Ok(Self::parse_file(text)?)
    }

    /// Like [`of_file`](Self::of_file), with the reason as a value.
    pub(crate) fn parse_file(text: &str) -> Result<Self, PathError> {
        let path = Self::parse(text, Path::new(WORK))?;
        if path.names.is_empty() {
            return Err(PathError::NoName(shortened(text)));
        }
        Ok(path)
    }

    /// Parses a path that is relative to `root`, or an absolute path beneath it.
    pub(super) fn parse(text: &str, root: &Path) -> Result<Self, PathError> {
        let elsewhere = || PathError::Elsewhere {
            path: shortened(text),
            root: root.display().to_string(),
        };
        if text.contains('\0') {
            return Err(PathError::ZeroByte(shortened(text)));
        }
        let relative = if text.starts_with('/') {
            let below = Path::new(text).strip_prefix(root);
            below.ok().and_then(Path::to_str).ok_or_else(elsewhere)?
        } else {
            text
        };
        let mut names: Vec<String> = Vec::new();
        for name in relative.split('/') {
            match name {
                "" | "." => {}
                ".." => drop(names.pop().ok_or_else(elsewhere)?),
                name => names.push(name.to_owned()),
            }
        }
        let path = Self { names };
        let too_long = path.names.iter().any(|name| name.len() > LONGEST_NAME)
            || path.to_string().len() > LONGEST_PATH;
        if too_long {
            return Err(PathError::TooLong(shortened(text)));
        }
        Ok(path)
    }

    /// Splits off the last name. `None` for the work directory itself.
    pub(super) fn split(&self) -> Option<(Self, &str)> {
        let (name, above) = self.names.split_last()?;
        let above = Self {
            names: above.to_vec(),
        };
        Some((above, name))
    }

    /// Returns the path as a C string.
    pub(super) fn to_c(&self) -> CString {
        // The constructor rejects NUL bytes.
        CString::new(self.to_string()).unwrap_or_default()
    }
}

/// The path relative to the work directory.
impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names.as_slice() {
            [] => f.write_str("."),
            names => f.write_str(&names.join("/")),
        }
    }
}

/// Shortens a path for a message.
fn shortened(text: &str) -> String {
    const QUOTED: usize = 200;
    text.chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(text: &str) -> Result<String, PathError> {
        GuestPath::parse(text, Path::new("/work")).map(|path| path.to_string())
    }

    #[test]
    fn paths_are_relative_or_beneath_the_work_directory() {
        let same = [
            ("a", "a"),
            ("./a//b/", "a/b"),
            ("/work/a", "a"),
            ("/work//a", "a"),
            ("a/../b", "b"),
            ("a/b/../../c", "c"),
            ("...", "..."),
            ("work/a", "work/a"),
            ("ü\n", "ü\n"),
            ("", "."),
            (".", "."),
            ("/work", "."),
            ("/work/", "."),
            ("/work/a/..", "."),
        ];
        for (text, path) in same {
            assert_eq!(parse(text).as_deref(), Ok(path), "{text}");
        }
    }

    #[test]
    fn file_path_needs_a_name() {
        let file = |text| GuestPath::parse_file(text).map(|path| path.to_string());
        assert_eq!(file("/work/a/b").as_deref(), Ok("a/b"));
        for directory in ["", ".", "/work", "/work/", "a/.."] {
            let none = Err(PathError::NoName(directory.to_owned()));
            assert_eq!(file(directory), none, "{directory}");
        }
        assert!(matches!(
            file("/etc/passwd"),
            Err(PathError::Elsewhere { .. })
        ));
    }

    #[test]
    fn path_outside_the_work_directory_is_refused() {
        for text in [
            "..",
            "../a",
            "a/../../b",
            "/",
            "/etc/passwd",
            "/working",
            "/work/..",
            "/work/../etc",
        ] {
            let refused = parse(text);
            assert!(
                matches!(refused, Err(PathError::Elsewhere { .. })),
                "{text}: {refused:?}"
            );
        }
        assert_eq!(parse("a\0b"), Err(PathError::ZeroByte("a\0b".to_owned())));
    }

    #[test]
    fn error_names_the_path_once() {
        let long = "a".repeat(256);
        for (text, named) in [
            ("../a", "../a"),
            ("a/..", "a/.."),
            ("a\0b", r"a\0b"),
            (&long, &long[..200]),
        ] {
            let error = GuestPath::parse_file(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("`{named}")), "{error}");
            assert_eq!(error.matches(named).count(), 1, "{error}");
        }
    }

    #[test]
    fn length_limits_match_the_kernels() {
        assert!(parse(&"a".repeat(255)).is_ok());
        assert!(parse(&"a/".repeat(2048)[..4095]).is_ok());
        for long in ["a".repeat(256), "a/".repeat(2048) + "a"] {
            assert!(matches!(parse(&long), Err(PathError::TooLong(_))));
        }
    }

    proptest! {
        #[test]
        fn parsed_paths_never_contain_dot_dot(text in r"(/work)?/?([./a]|\.\.|b)*") {
            if let Ok(path) = GuestPath::parse(&text, Path::new("/work")) {
                let bad = |name: &String| matches!(name.as_str(), "" | "." | "..");
                prop_assert!(!path.names.iter().any(bad), "{path}");
            }
        }
    }
}
