//! The program of a request.

use crate::error::ErrorKind;
use crate::protocol::message::SourceKind;
use crate::supervisor::error::SupervisorError;

/// Python source, or a program and its arguments.
#[derive(Clone, Debug)]
pub enum Program {
    Python {
        source: Vec<u8>,
        kind: SourceKind,
        filename: String,
        args: Vec<String>,
    },
    Command(Vec<String>),
}

impl Program {
    /// Rejects strings that would raise an exception in Sandfork's own code inside the sandbox.
    pub fn check(&self) -> Result<(), SupervisorError> {
        let has_nul = |text: &String| text.contains('\0');
        let problem = match self {
            Self::Command(argv) if argv.first().is_none_or(String::is_empty) => {
                "a program has a name: give at least one argument"
            }
            Self::Command(argv) if argv.iter().any(has_nul) => {
                "an argument of a program must not contain NUL: remove it"
            }
            Self::Python { filename, .. } if has_nul(filename) => {
                "a file name must not contain NUL: remove it"
            }
            _ => return Ok(()),
        };
        Err(SupervisorError::new(ErrorKind::Request, problem))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_name_and_nul_are_refused() {
        let command = |argv: &[&str]| {
            let argv = argv.iter().map(ToString::to_string);
            Program::Command(argv.collect())
                .check()
                .map_err(|error| error.to_string())
        };
        assert_eq!(command(&["ls", ""]), Ok(()));
        for nameless in [&[][..], &[""]] {
            assert!(command(nameless).is_err_and(|why| why.contains("has a name")));
        }
        assert!(command(&["ls", "a\0b"]).is_err_and(|why| why.contains("NUL")));
        let python = Program::Python {
            source: Vec::new(),
            kind: SourceKind::Text,
            filename: "a\0b".to_owned(),
            args: Vec::new(),
        };
        assert!(python.check().is_err());
    }
}
