//! Writes the files of wheels. Their names and contents come out of a sandbox, and are treated as hostile.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::host::DESCRIPTION;
use crate::plan::is_deceptive;
use sandfork_jail::sys::write_signals;

/// The maximum size of an environment in bytes, and its maximum number of files and directories. The largest real ones,
/// with torch and CUDA, have half as many.
pub const MAX_BYTES: u64 = 16 << 30;
const MAX_FILES: u64 = 400_000;

/// The maximum length of a path and of a name, and the maximum number of path components.
const LONGEST_PATH: usize = 1024;
const LONGEST_NAME: usize = 255;
const MAX_PARTS: usize = 48;

/// The files that an environment itself creates.
const OWN: [&str; 4] = ["pyvenv.cfg", "lib64", DESCRIPTION, "bin/python"];

/// The reason why a file is not written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The installer may not write it.
    #[error("{0}")]
    Refused(String),
    /// A system call failed.
    #[error("{path}: {cause}", path = path.display())]
    Io {
        /// The file's path.
        path: PathBuf,
        /// The error of the system call.
        cause: io::Error,
    },
}

impl FileError {
    /// Returns the error for parts of a file that are not consecutive.
    pub fn order(what: &str) -> Self {
        Self::Refused(format!("the installer sent `{what}` in the wrong order"))
    }

    /// Returns the error for too many or too large files.
    fn too_large() -> Self {
        let most = MAX_BYTES >> 30;
        Self::Refused(format!(
            "the wheels have more than {MAX_FILES} files or {most} GiB"
        ))
    }
}

/// Whether a file is executable.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileMode {
    /// Not executable.
    Plain,
    /// Executable.
    Program,
}

/// A directory that is filled with files. No other process writes to it, and it contains no links yet.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    open: Option<(String, File, u64)>,
    files: u64,
    bytes: u64,
}

impl Tree {
    /// Starts with an empty directory.
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            open: None,
            files: 0,
            bytes: 0,
        }
    }

    /// Returns the number of bytes written.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a part of a file. A file must be complete before the next file begins.
    ///
    /// # Errors
    /// If the path is not allowed in an environment, or if there are too many bytes or files.
    pub fn write(
        &mut self,
        path: &str,
        mode: FileMode,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FileError> {
        self.bytes = self.bytes.saturating_add(data.len() as u64);
        if self.bytes > MAX_BYTES {
            return Err(FileError::too_large());
        }
        if offset == 0 {
            self.begin(path, mode)?;
        }
        let root = &self.root;
        match &mut self.open {
            Some((name, file, written)) if name == path && *written == offset => {
                *written += data.len() as u64;
                write_signals::as_errors(|| file.write_all(data)).map_err(|cause| FileError::Io {
                    path: root.join(path),
                    cause,
                })
            }
            _ => Err(FileError::order(&shown(path))),
        }
    }

    fn begin(&mut self, path: &str, mode: FileMode) -> Result<(), FileError> {
        check(path)?;
        let target = self.root.join(path);
        // A directory takes as much disk space as a file, and a path may have many.
        let above = target.ancestors().skip(1);
        let new = above.take_while(|directory| !directory.exists()).count();
        self.files += 1 + new as u64;
        if self.files > MAX_FILES {
            return Err(FileError::too_large());
        }
        let io = |cause| FileError::Io {
            path: target.clone(),
            cause,
        };
        fs::create_dir_all(target.parent().unwrap_or(&self.root)).map_err(io)?;
        // Packages share files such as a namespace's `__init__.py`. The last one wins, as with pip.
        match fs::remove_file(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        let bits = match mode {
            FileMode::Plain => 0o444,
            FileMode::Program => 0o555,
        };
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(bits)
            .open(&target);
        let file = file.map_err(io)?;
        // The caller's umask does not apply here.
        file.set_permissions(Permissions::from_mode(bits))
            .map_err(io)?;
        self.open = Some((path.to_owned(), file, 0));
        Ok(())
    }
}

/// Checks whether a file of a wheel may have this path in an environment.
///
/// # Errors
/// The reason why it may not.
pub fn check(path: &str) -> Result<(), FileError> {
    let refused = |problem| {
        let shown = shown(path);
        Err(FileError::Refused(format!(
            "a wheel has the file `{shown}`, {problem}"
        )))
    };
    let parts: Vec<&str> = path.split('/').collect();
    if parts.iter().any(|part| matches!(*part, "" | "." | "..")) {
        return refused("which leads out of its environment");
    }
    if path.len() > LONGEST_PATH
        || parts.len() > MAX_PARTS
        || parts.iter().any(|part| part.len() > LONGEST_NAME)
    {
        return refused("whose path is too long");
    }
    if path.chars().any(|c| is_deceptive(c) || c == '\\') {
        return refused("whose name has characters that cannot be shown");
    }
    let is_own = OWN
        .iter()
        .any(|own| path == *own || path.starts_with(&format!("{own}/")));
    let is_interpreter = path
        .strip_prefix("bin/python")
        .is_some_and(|rest| rest.chars().all(|c| c.is_ascii_digit() || c == '.'));
    if is_own || is_interpreter {
        return refused("which every environment creates itself");
    }
    Ok(())
}

/// Formats a path for a message.
fn shown(path: &str) -> String {
    path.chars()
        .map(|c| if is_deceptive(c) { '\u{fffd}' } else { c })
        .take(200)
        .collect()
}

/// Sets the mode of all directories of a tree, to make them read-only, or writable for removal.
pub fn set_directories(root: &Path, bits: u32) -> io::Result<()> {
    fs::set_permissions(root, Permissions::from_mode(bits))?;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            set_directories(&entry.path(), bits)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn paths_outside_the_environment_are_rejected() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(dir.path().join("env"));
        for path in [
            "",
            "/etc/passwd",
            "../x",
            "lib/../../x",
            "lib//x",
            "lib/./x",
            "lib/x\0y",
            "lib/x\u{202e}y",
            "lib/x\\y",
            "lib/x\ny",
            "pyvenv.cfg",
            "environment.json",
            "lib64/x",
            "bin/python",
            "bin/python3",
            "bin/python3.11",
            "bin/python/x",
            &"a/".repeat(60),
            &"a".repeat(300),
        ] {
            assert!(
                tree.write(path, FileMode::Plain, 0, b"x").is_err(),
                "{path:?}"
            );
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        for path in [
            "bin/pip",
            "bin/python-config",
            "lib/python3.11/site-packages/a.py",
            "share/a",
            "é",
        ] {
            tree.write(path, FileMode::Plain, 0, b"x").unwrap();
        }
    }

    #[test]
    fn directories_count_as_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(dir.path().to_owned());
        let deep = |name: &str| format!("lib/{}x", format!("{name}/").repeat(40));
        let mut write = |path: &str| tree.write(path, FileMode::Plain, 0, b"");
        write(&deep("a")).unwrap();
        write("lib/y").unwrap();
        assert_eq!(tree.files, 1 + 40 + 1 + 1);
        tree.files = MAX_FILES - 40;
        let refused = tree.write(&deep("b"), FileMode::Plain, 0, b"");
        let expected = refused.expect_err("too many").to_string();
        assert_eq!(expected, "the wheels have more than 400000 files or 16 GiB");
        assert!(!dir.path().join("lib/b").exists());
    }

    #[test]
    fn parts_of_a_file_must_be_consecutive() {
        let dir = tempfile::tempdir().unwrap();
        let mut tree = Tree::new(dir.path().to_owned());
        tree.write("bin/a", FileMode::Program, 0, b"one").unwrap();
        tree.write("bin/a", FileMode::Program, 3, b"two").unwrap();
        assert!(tree.write("bin/a", FileMode::Plain, 9, b"x").is_err());
        tree.write("b", FileMode::Plain, 0, b"").unwrap();
        assert!(tree.write("bin/a", FileMode::Plain, 6, b"x").is_err());
        assert_eq!(fs::read(dir.path().join("bin/a")).unwrap(), b"onetwo");
        let mode = |path: &str| {
            fs::metadata(dir.path().join(path))
                .unwrap()
                .permissions()
                .mode()
                & 0o7777
        };
        assert_eq!((mode("bin/a"), mode("b")), (0o555, 0o444));
        // The last wheel's file wins.
        tree.write("bin/a", FileMode::Plain, 0, b"new").unwrap();
        assert_eq!(fs::read(dir.path().join("bin/a")).unwrap(), b"new");
        // A file must not replace another wheel's directory.
        assert!(tree.write("bin", FileMode::Plain, 0, b"").is_err());
        assert!(tree.write("b/c", FileMode::Plain, 0, b"").is_err());
    }
}
