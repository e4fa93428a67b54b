//! Finds, reads and checks the script of `sandfork run` before a sandbox is made for it.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::failure::Failure;
use crate::Request;
use crate::protocol::FrameLimits;
use crate::protocol::message::{SourceKind, has_coding_line};
use crate::supervisor::open_regular;

/// The maximum length of a script, in bytes: the payload of one frame.
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
    /// The `file` of a task. It must be a regular file, because a task must not block on a pipe.
    Task(PathBuf),
}

/// A script that can be sent to a worker.
#[derive(Debug, Eq, PartialEq)]
pub struct Script {
    /// The name in tracebacks, as Python prints it.
    pub name: String,
    /// The source, in UTF-8 or in the encoding of its coding line.
    source: Vec<u8>,
    /// Whether the source is a file, in which a coding line is significant.
    kind: SourceKind,
}

impl Script {
    /// Reads and checks a script.
    pub fn load(origin: Origin) -> Result<Self, Failure> {
        match origin {
            Origin::Code(source) => {
                Self::check("<string>", "the code of `-c`", source.into_bytes())
            }
            Origin::Stdin => {
                let label = "the script on stdin";
                let bytes = read(io::stdin().lock()).map_err(|cause| unreadable("-", &cause))?;
                Self::check("<stdin>", label, bytes)
            }
            Origin::File(path) => Self::read(&path, open(&path)),
            Origin::Task(path) => Self::read(&path, open_regular(&path)),
        }
    }

    fn read(path: &Path, opened: io::Result<File>) -> Result<Self, Failure> {
        let file = opened.map_err(|cause| refused(path, &cause))?;
        let name = path.display().to_string();
        let bytes = read(file).map_err(|cause| unreadable(&name, &cause))?;
        Self::check(&name, &format!("`{name}`"), bytes)
    }

    fn check(name: &str, label: &str, bytes: Vec<u8>) -> Result<Self, Failure> {
        if bytes.len() > MAX_BYTES {
            return Err(Failure::Usage(format!(
                "{label} is over the {} MiB that a script may have; keep data out of it",
                MAX_BYTES >> 20
            )));
        }
        let kind = match name {
            "<string>" => SourceKind::Text,
            _ => SourceKind::File,
        };
        if is_zip(&bytes) {
            return Err(Failure::Usage(format!(
                "{label} is a ZIP file, which cannot be run directly: unpack it, and pass the directory"
            )));
        }
        if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
            return Err(Failure::Usage(format!(
                "{label} is UTF-16, which Python does not read; save it as UTF-8"
            )));
        }
        if !has_coding_line(&bytes) {
            utf8(label, &bytes)?;
        }
        Ok(Self {
            name: name.to_owned(),
            source: bytes,
            kind,
        })
    }

    /// Returns the source as text. A script that is run statement by statement must be UTF-8.
    pub fn text(&self) -> Result<&str, Failure> {
        utf8("the script", &self.source)
    }

    /// Returns the request that runs the script.
    pub fn request(self) -> Request {
        Request::source(self.source, self.kind).filename(self.name)
    }

    /// Returns the request that runs the script, with its file in the work directory.
    pub fn request_with_file(self) -> Request {
        Request::source(self.source, self.kind).own_file(&self.name)
    }
}

/// Returns whether the file is a ZIP archive, possibly after a `#!` line.
fn is_zip(bytes: &[u8]) -> bool {
    let line = bytes.split_inclusive(|byte| *byte == b'\n').next();
    let first = line.filter(|line| line.starts_with(b"#!"));
    bytes[first.map_or(0, <[u8]>::len)..].starts_with(b"PK\x03\x04")
}

fn utf8<'a>(label: &str, bytes: &'a [u8]) -> Result<&'a str, Failure> {
    std::str::from_utf8(bytes).map_err(|error| {
        let at = error.valid_up_to();
        let line = bytes[..at].split(|byte| *byte == b'\n').count();
        Failure::Usage(format!(
            "{label} is not UTF-8: byte 0x{:02x} in line {line}; save it as UTF-8, or name its encoding in its first \
             line, such as `# coding: latin-1`",
            bytes[at]
        ))
    })
}

/// Opens a script, which may be a pipe such as the shell's `<(...)`.
fn open(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    // Opening a directory for reading succeeds. The check uses the open descriptor, because the path could be replaced.
    match file.metadata() {
        Ok(metadata) if metadata.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        _ => Ok(file),
    }
}

/// Returns the error for a path that cannot be opened.
fn refused(path: &Path, cause: &io::Error) -> Failure {
    match cause.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            Failure::NoScript(path.to_owned())
        }
        io::ErrorKind::IsADirectory => no_main(path),
        io::ErrorKind::InvalidInput => Failure::Usage(format!(
            "`{}` is not a regular file; save the script in one",
            path.display()
        )),
        _ => unreadable(&path.display().to_string(), cause),
    }
}

/// Returns the error for a directory without a `__main__.py`.
pub fn no_main(path: &Path) -> Failure {
    Failure::Usage(format!(
        "`{}` is a directory without a `__main__.py`; name the script in it",
        path.display()
    ))
}

/// Reads at most one byte more than the limit, because `/dev/zero` has no end.
fn read(input: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn unreadable(name: &str, cause: &io::Error) -> Failure {
    Failure::Usage(format!(
        "`{name}` cannot be read: {cause}; check its permissions"
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), bytes).unwrap();
        let error = Script::load(Origin::File(file.path().to_owned())).unwrap_err();
        error
            .to_string()
            .replace(&file.path().display().to_string(), "FILE")
    }

    #[test]
    fn script_keeps_name_and_source() {
        let script = Script::load(Origin::Code("print(1)".into())).unwrap();
        assert_eq!(
            script,
            Script {
                name: "<string>".into(),
                source: b"print(1)".to_vec(),
                kind: SourceKind::Text,
            }
        );
    }

    #[test]
    fn unusable_script_is_explained() {
        assert_eq!(
            refusal(b"a = 1\nb = '\xe9'\n"),
            "`FILE` is not UTF-8: byte 0xe9 in line 2; save it as UTF-8, or name its encoding in its \
             first line, such as `# coding: latin-1`"
        );
        assert!(refusal(b"\xff").contains("byte 0xff in line 1"));
        assert_eq!(
            refusal(b"\xff\xfep\0"),
            "`FILE` is UTF-16, which Python does not read; save it as UTF-8"
        );
        for zip in [
            &b"PK\x03\x04\x14\xff"[..],
            b"#!/usr/bin/env python3\nPK\x03\x04",
        ] {
            assert!(
                refusal(zip).ends_with("cannot be run directly: unpack it, and pass the directory")
            );
        }
        assert!(refusal(&vec![b'#'; MAX_BYTES + 1]).contains("over the 16 MiB"));
    }

    #[test]
    fn script_may_declare_encoding_or_be_empty() {
        for bytes in [
            &b"# coding: latin-1\nb = '\xe9'\n"[..],
            b"#!/usr/bin/python3\n# vim: set fileencoding=cp1252 :\n'\x80'",
            b"",
            b"\xef\xbb\xbf \n\t\n",
        ] {
            let file = tempfile::NamedTempFile::new().unwrap();
            fs::write(file.path(), bytes).unwrap();
            let script = Script::load(Origin::File(file.path().to_owned())).unwrap();
            assert_eq!((&script.source[..], script.kind), (bytes, SourceKind::File));
        }
        assert!(refusal(b"\n\n# coding: latin-1\n'\xe9'").contains("not UTF-8"));
    }

    #[test]
    fn endless_script_is_too_large() {
        let error = Script::load(Origin::File("/dev/zero".into())).unwrap_err();
        let sentence = "`/dev/zero` is over the 16 MiB that a script may have; keep data out of it";
        assert_eq!(error.to_string(), sentence);
    }

    #[test]
    fn task_file_must_be_regular() {
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for other in [fifo, "/dev/zero".into()] {
            let refused = Script::load(Origin::Task(other)).unwrap_err().to_string();
            assert!(
                refused.ends_with("is not a regular file; save the script in one"),
                "{refused}"
            );
        }
        let script = directory.path().join("script.py");
        fs::write(&script, "pass").unwrap();
        assert_eq!(Script::load(Origin::Task(script)).unwrap().source, b"pass");
        let refused = Script::load(Origin::Task("/".into())).unwrap_err();
        assert_eq!(refused.to_string(), no_main(Path::new("/")).to_string());
    }

    #[test]
    fn directories_and_missing_files_are_explained() {
        let directory = Script::load(Origin::File("/".into())).unwrap_err();
        assert_eq!(
            directory.to_string(),
            "`/` is a directory without a `__main__.py`; name the script in it"
        );
        let missing = Script::load(Origin::File("/nowhere/x.py".into())).unwrap_err();
        assert!(
            missing
                .to_string()
                .starts_with("`/nowhere/x.py` does not exist")
        );
    }
}
