//! Parses one policy text, a built-in policy, a file or an override, and keeps the positions of its values.

use std::path::PathBuf;

use super::builtin::BuiltIn;
use super::error::PolicyError;
use super::origin::Origin;
use super::read::read;
use super::values::Values;

/// The value of `Origin::file` for an override.
const OVERRIDE: &str = "--set";

/// A parsed policy text.
#[derive(Debug)]
pub(super) struct Layer {
    /// The valid values.
    pub(super) values: Values,
    /// The errors of the invalid values.
    pub(super) errors: Vec<PolicyError>,
    /// The author of the text.
    pub(super) author: Author,
    /// The absolute directory against which relative paths are resolved.
    pub(super) directory: Option<PathBuf>,
    /// The origin of the text as a whole.
    pub(super) whole: Origin,
    /// The absolute path of the file. `None` if the text is not a file.
    pub(super) file: Option<PathBuf>,
}

/// The author of a policy text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Author {
    /// The text is a built-in policy.
    Sandfork,
    /// The text is a file or an argument of the user.
    User,
}

/// The name and line offsets of a text, for error messages.
#[derive(Clone, Debug)]
pub(super) struct Source {
    name: String,
    /// The byte offset at which each line starts. `None` if errors should not name lines.
    line_starts: Option<Vec<usize>>,
}

impl Source {
    /// Creates the source of a file, whose errors name lines.
    pub(super) fn file(name: impl Into<String>, text: &str) -> Self {
        let newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            name: name.into(),
            line_starts: Some(std::iter::once(0).chain(newlines).collect()),
        }
    }

    /// Creates the source of a text that is not a file. Errors name no lines, because its author has not seen any.
    pub(super) fn inline() -> Self {
        Self {
            name: String::new(),
            line_starts: None,
        }
    }

    /// Creates the source of a command-line argument.
    pub(super) fn argument() -> Self {
        Self {
            name: OVERRIDE.to_owned(),
            line_starts: None,
        }
    }

    /// Returns the origin of the byte at this offset.
    pub(super) fn origin(&self, offset: usize) -> Origin {
        // The first line starts at 0, so the count is at least 1.
        let line = |starts: &Vec<usize>| starts.partition_point(|start| *start <= offset);
        let line = self.line_starts.as_ref().map(line);
        Origin {
            file: self.name.clone(),
            line: line.and_then(|line| u32::try_from(line).ok()),
        }
    }

    /// Returns the origin of the text as a whole.
    pub(super) fn whole(&self) -> Origin {
        Origin::of_file(self.name.clone())
    }
}

impl Layer {
    /// Parses a built-in policy. A built-in policy needs no directory, because it has no relative paths.
    pub(super) fn builtin(builtin: &BuiltIn) -> Result<Self, Vec<PolicyError>> {
        let source = Source::file(format!("built-in {}", builtin.name), builtin.text);
        Ok(Self {
            author: Author::Sandfork,
            ..Self::parse(&source, builtin.text, None)?
        })
    }

    /// Parses a text of the user.
    pub(super) fn parse(
        source: &Source,
        text: &str,
        directory: Option<PathBuf>,
    ) -> Result<Self, Vec<PolicyError>> {
        let (values, errors) = read(text, source, directory.as_deref())?;
        Ok(Self {
            values,
            errors,
            author: Author::User,
            directory,
            whole: source.whole(),
            file: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one() {
        let text = "a\nbc\r\n\nd";
        let source = Source::file("x.toml", text);
        let line_of = |needle: &str| {
            let offset = text.find(needle).expect("in the text");
            source.origin(offset).line
        };
        assert_eq!(line_of("a"), Some(1));
        // A line break belongs to the line before it.
        assert_eq!(line_of("\n"), Some(1));
        assert_eq!(line_of("bc"), Some(2));
        assert_eq!(line_of("d"), Some(4));
        assert_eq!(source.origin(text.len()).line, Some(4));
        assert_eq!(Source::file("x.toml", "").origin(0).line, Some(1));
    }

    #[test]
    fn argument_has_no_line_numbers() {
        assert_eq!(Source::argument().origin(3).to_string(), "--set");
    }
}
