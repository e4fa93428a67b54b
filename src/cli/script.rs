//! The script of `sandfork run`: found, read and checked before a sandbox is made for it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sandfork::protocol::FrameLimits;
use thiserror::Error;

/// The longest script, in bytes: what one frame carries.
pub const MAX_BYTES: usize = FrameLimits::TO_WORKER.payload;

/// Where a script comes from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Origin {
    /// `-c CODE`.
    Code(String),
    /// `-`.
    Stdin,
    /// A file.
    File(PathBuf),
}

/// A script that can be sent to a worker.
#[derive(Debug, Eq, PartialEq)]
pub struct Script {
    /// The name that tracebacks show, as Python would name it.
    pub name: String,
    /// Source, UTF-8.
    pub source: String,
}

/// Why there is no script to run.
#[derive(Debug, Error)]
pub enum ScriptError {
    /// There is no such file.
    #[error("`{0}` does not exist; check the path, or pass code with `-c`")]
    Missing(PathBuf),
    /// A directory.
    #[error("`{0}` is a directory; name the script in it")]
    Directory(PathBuf),
    /// It is there and cannot be read.
    #[error("`{name}` cannot be read: {cause}; check its permissions")]
    Unreadable {
        /// The script.
        name: String,
        /// As the kernel says.
        cause: io::Error,
    },
    /// Nothing but blanks.
    #[error("{0} is empty; give it at least one statement, `pass` will do")]
    Empty(String),
    /// More than a frame carries.
    #[error("{0} is over the {limit} MiB that a script may have; keep data out of it", limit = MAX_BYTES >> 20)]
    TooLarge(String),
    /// Bytes that are no text.
    #[error("{name} is not UTF-8: byte 0x{byte:02x} in line {line}; save it as UTF-8")]
    NotUtf8 {
        /// The script.
        name: String,
        /// The first byte that does not fit.
        byte: u8,
        /// The line that it is in, from 1.
        line: usize,
    },
}

impl Script {
    /// Reads and checks a script.
    pub fn load(origin: Origin) -> Result<Self, ScriptError> {
        match origin {
            Origin::Code(source) => {
                Self::check("<string>", "the code of `-c`", source.into_bytes())
            }
            Origin::Stdin => {
                let label = "the script on stdin";
                let bytes = read(io::stdin().lock()).map_err(|cause| unreadable("-", cause))?;
                Self::check("<stdin>", label, bytes)
            }
            Origin::File(path) => {
                let name = path.display().to_string();
                let bytes = open(&path)?;
                let bytes = read(bytes).map_err(|cause| unreadable(&name, cause))?;
                Self::check(&name, &format!("`{name}`"), bytes)
            }
        }
    }

    fn check(name: &str, label: &str, bytes: Vec<u8>) -> Result<Self, ScriptError> {
        if bytes.len() > MAX_BYTES {
            return Err(ScriptError::TooLarge(label.to_owned()));
        }
        let source = String::from_utf8(bytes).map_err(|error| {
            let at = error.utf8_error().valid_up_to();
            let bytes = error.as_bytes();
            let line = bytes[..at].split(|byte| *byte == b'\n').count();
            ScriptError::NotUtf8 {
                name: label.to_owned(),
                byte: bytes[at],
                line,
            }
        })?;
        if source.trim_start_matches('\u{feff}').trim().is_empty() {
            return Err(ScriptError::Empty(label.to_owned()));
        }
        Ok(Self {
            name: name.to_owned(),
            source,
        })
    }
}

fn open(path: &Path) -> Result<File, ScriptError> {
    let file = File::open(path).map_err(|cause| match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            ScriptError::Missing(path.to_owned())
        }
        _ => unreadable(&path.display().to_string(), cause),
    })?;
    // Opening a directory for reading succeeds; asked of the open file, so that it is the same one.
    match file.metadata() {
        Ok(metadata) if metadata.is_dir() => Err(ScriptError::Directory(path.to_owned())),
        _ => Ok(file),
    }
}

/// Reads no more than one byte over the limit: `/dev/zero` has no end.
fn read(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(name: &str, cause: io::Error) -> ScriptError {
    ScriptError::Unreadable {
        name: name.to_owned(),
        cause,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        let error = Script::load(Origin::File(file.path().to_owned())).unwrap_err();
        error
            .to_string()
            .replace(&file.path().display().to_string(), "FILE")
    }

    #[test]
    fn a_script_keeps_its_name_and_source() {
        let script = Script::load(Origin::Code("print(1)".into())).unwrap();
        assert_eq!(
            script,
            Script {
                name: "<string>".into(),
                source: "print(1)".into()
            }
        );
    }

    #[test]
    fn what_is_no_script_is_named() {
        assert_eq!(
            refusal(b""),
            "`FILE` is empty; give it at least one statement, `pass` will do"
        );
        assert!(refusal(b"\xef\xbb\xbf \n\t\n").contains("is empty"));
        assert_eq!(
            refusal(b"a = 1\nb = '\xe9'\n"),
            "`FILE` is not UTF-8: byte 0xe9 in line 2; save it as UTF-8"
        );
        assert!(refusal(b"\xff").contains("byte 0xff in line 1"));
        assert!(refusal(&vec![b'#'; MAX_BYTES + 1]).contains("over the 16 MiB"));
    }

    #[test]
    fn a_script_without_end_is_too_large() {
        let error = Script::load(Origin::File("/dev/zero".into())).unwrap_err();
        assert!(matches!(error, ScriptError::TooLarge(_)));
    }

    #[test]
    fn directories_and_missing_files_are_named() {
        let directory = Script::load(Origin::File("/".into())).unwrap_err();
        assert_eq!(
            directory.to_string(),
            "`/` is a directory; name the script in it"
        );
        let missing = Script::load(Origin::File("/nowhere/x.py".into())).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("`/nowhere/x.py` does not exist")
        );
    }
}
