//! One policy text: a built-in, a file or an override, parsed, with its positions.

use std::path::PathBuf;

use super::builtin::BuiltIn;
use super::error::PolicyError;
use super::origin::Origin;
use super::read::read;
use super::values::Values;

/// The value of `Origin::file` for an override.
const OVERRIDE: &str = "--set";

/// One policy text and its contents.
#[derive(Debug)]
pub(super) struct Layer {
    /// The values that it has.
    pub(super) values: Values,
    /// What is wrong with those that it does not have.
    pub(super) errors: Vec<PolicyError>,
    /// Who wrote it.
    pub(super) author: Author,
    /// The absolute directory for its relative paths, if it has one.
    pub(super) directory: Option<PathBuf>,
    /// The text as a whole.
    pub(super) whole: Origin,
    /// The file that it was read from, by an absolute path, if it is one.
    pub(super) file: Option<PathBuf>,
}

/// Who wrote a policy text.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Author {
    /// It comes with Sandfork.
    Sandfork,
    /// It is the user's own file or argument.
    User,
}

/// A text's name and lines, for errors.
#[derive(Clone, Debug)]
pub(super) struct Source {
    name: String,
    /// The offset at which each line starts, if there are lines.
    line_starts: Option<Vec<usize>>,
}

impl Source {
    /// A text with lines.
    pub(super) fn file(name: impl Into<String>, text: &str) -> Self {
        let newlines = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            name: name.into(),
            line_starts: Some(std::iter::once(0).chain(newlines).collect()),
        }
    }

    /// A text that is no file, whose lines its author has not seen.
    pub(super) fn words() -> Self {
        Self {
            name: String::new(),
            line_starts: None,
        }
    }

    /// An argument of the command line.
    pub(super) fn argument() -> Self {
        Self {
            name: OVERRIDE.to_owned(),
            line_starts: None,
        }
    }

    /// The position of a byte of the text.
    pub(super) fn origin(&self, offset: usize) -> Origin {
        // The first line starts at 0, so the count is at least 1.
        let line = |starts: &Vec<usize>| starts.partition_point(|start| *start <= offset);
        let line = self.line_starts.as_ref().map(line);
        Origin {
            file: self.name.clone(),
            line: line.and_then(|line| u32::try_from(line).ok()),
        }
    }

    /// The text as a whole.
    pub(super) fn whole(&self) -> Origin {
        Origin::of_file(self.name.clone())
    }
}

impl Layer {
    /// Parses a built-in policy. It has no directory, because it names no relative path.
    pub(super) fn builtin(builtin: &BuiltIn) -> Result<Self, Vec<PolicyError>> {
        let source = Source::file(format!("built-in {}", builtin.name), builtin.text);
        Ok(Self {
            author: Author::Sandfork,
            ..Self::parse(&source, builtin.text, None)?
        })
    }

    /// Parses a text.
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
    fn an_argument_has_no_lines() {
        assert_eq!(Source::argument().origin(3).to_string(), "--set");
    }
}
