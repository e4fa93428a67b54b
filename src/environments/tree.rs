//! Writes the files of wheels. Their names and contents come out of a sandbox, and are taken for hostile.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::host::DESCRIPTION;
use crate::plan::is_deceptive;
use sandfork_jail::sys::write_signals;

/// The most bytes and files of an environment, directories among them. The largest that people make, with torch and CUDA, has half as many.
pub const MOST_BYTES: u64 = 16 << 30;
const MOST_FILES: u64 = 400_000;

/// The longest path and name, and the most directories above a file.
const LONGEST_PATH: usize = 1024;
const LONGEST_NAME: usize = 255;
const MOST_PARTS: usize = 48;

/// What an environment has of its own.
const OWN: [&str; 4] = ["pyvenv.cfg", "lib64", DESCRIPTION, "bin/python"];

/// Why a file is not written.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The installer may not write it.
    #[error("{0}")]
    Refused(String),
    /// The kernel refused.
    #[error("{path}: {cause}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        cause: io::Error,
    },
}

impl FileError {
    /// The parts of a file do not follow each other.
    pub fn order(what: &str) -> Self {
        Self::Refused(format!("the installer sent `{what}` in the wrong order"))
    }

    /// There are too many files, or they are too large.
    fn too_large() -> Self {
        let most = MOST_BYTES >> 30;
        Self::Refused(format!(
            "the wheels have more than {MOST_FILES} files or {most} GiB"
        ))
    }
}

/// Whether a file is a program.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum FileMode {
    /// Data or code that is read.
    Plain,
    /// Something that is run.
    Program,
}

/// A directory that is filled with files. No other process writes to it, and there is no link in it yet.
#[derive(Debug)]
pub struct Tree {
    root: PathBuf,
    open: Option<(String, File, u64)>,
    files: u64,
    bytes: u64,
}

impl Tree {
    /// Fills an empty directory.
    pub fn new(root: PathBuf) -> Self {
        Self {
            root,
            open: None,
            files: 0,
            bytes: 0,
        }
    }

    /// How much there is.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Writes a part of a file. Each file comes whole before the next one.
    ///
    /// # Errors
    /// If the path is not one of an environment, or there is too much.
    pub fn write(
        &mut self,
        path: &str,
        mode: FileMode,
        offset: u64,
        data: &[u8],
    ) -> Result<(), FileError> {
        self.bytes = self.bytes.saturating_add(data.len() as u64);
        if self.bytes > MOST_BYTES {
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
        // A directory takes as much of the host's disk as a file, and a path may lead through many.
        let above = target.ancestors().skip(1);
        let new = above.take_while(|directory| !directory.exists()).count();
        self.files += 1 + new as u64;
        if self.files > MOST_FILES {
            return Err(FileError::too_large());
        }
        let io = |cause| FileError::Io {
            path: target.clone(),
            cause,
        };
        fs::create_dir_all(target.parent().unwrap_or(&self.root)).map_err(io)?;
        // Packages share files such as `__init__.py` of a namespace. The last one stays, as with pip.
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
        // The caller's umask is for files of its own.
        file.set_permissions(Permissions::from_mode(bits))
            .map_err(io)?;
        self.open = Some((path.to_owned(), file, 0));
        Ok(())
    }
}

/// Whether a file of a wheel may have this path in an environment.
///
/// # Errors
/// Why it may not.
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
        || parts.len() > MOST_PARTS
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
        return refused("which every environment has of its own");
    }
    Ok(())
}

/// A path for a message.
fn shown(path: &str) -> String {
    path.chars()
        .map(|c| if is_deceptive(c) { '\u{fffd}' } else { c })
        .take(200)
        .collect()
}

/// Takes the right to write to the directories of a tree, or gives it back to remove them.
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
    fn only_paths_in_the_environment_are_written() {
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
        tree.files = MOST_FILES - 40;
        let refused = tree.write(&deep("b"), FileMode::Plain, 0, b"");
        let told = refused.expect_err("too many").to_string();
        assert_eq!(told, "the wheels have more than 400000 files or 16 GiB");
        assert!(!dir.path().join("lib/b").exists());
    }

    #[test]
    fn a_file_comes_in_parts_and_whole() {
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
        // The last wheel's file stays.
        tree.write("bin/a", FileMode::Plain, 0, b"new").unwrap();
        assert_eq!(fs::read(dir.path().join("bin/a")).unwrap(), b"new");
        // A file where another wheel has a directory is an error and no replacement.
        assert!(tree.write("bin", FileMode::Plain, 0, b"").is_err());
        assert!(tree.write("b/c", FileMode::Plain, 0, b"").is_err());
    }
}
