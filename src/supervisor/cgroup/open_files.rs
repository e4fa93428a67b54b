//! Keeps a cgroup's files open between reads.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// An upper bound on the length of the files.
const LONGEST: usize = 1024;

/// The counters that are reset before a cgroup is used again: on version 2, and on version 1.
const PEAKS: [&str; 2] = ["memory.peak", "memory.max_usage_in_bytes"];

/// The open files of a cgroup. Opening a file costs several times as much as reading it, and the files are read
/// repeatedly by a session, and by the runs that the cgroup serves one after another.
#[derive(Debug, Default)]
pub struct OpenFiles {
    /// The open files by name. Names differ between hierarchies.
    open: RefCell<Vec<(&'static str, File)>>,
}

impl OpenFiles {
    /// Opens one of a directory's files. Does nothing if the kernel does not provide it.
    pub fn open(&self, dir: &Path, name: &'static str) -> io::Result<()> {
        match self.with(dir, name, |_| Ok(())) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    /// Returns the text of one of a directory's files.
    pub fn read(&self, dir: &Path, name: &'static str) -> io::Result<String> {
        let mut buffer = [0; LONGEST];
        // The kernel generates the text anew for each read at offset 0.
        let length = self.with(dir, name, |file| file.read_at(&mut buffer, 0))?;
        String::from_utf8(buffer[..length].to_vec()).map_err(io::Error::other)
    }

    /// Closes the files. The next read opens its file again.
    pub fn close(&self) {
        self.open.borrow_mut().clear();
    }

    /// Resets a counter. Returns an error if the kernel cannot.
    pub fn reset(&self, dir: &Path, name: &'static str) -> io::Result<()> {
        self.with(dir, name, |file| file.write_at(b"0", 0))
            .map(drop)
    }

    fn with<T>(
        &self,
        dir: &Path,
        name: &'static str,
        act: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut open = self.open.borrow_mut();
        if let Some((_, file)) = open.iter().find(|(opened, _)| *opened == name) {
            return act(file);
        }
        let file = open_file(dir, name)?;
        let done = act(&file);
        open.push((name, file));
        done
    }
}

/// Opens a cgroup file. A peak is also opened for writing if possible: on version 2, a reset applies only to the open
/// file that it was written to (Linux 6.12). All other files are only read, and most files of version 2 are not
/// writable.
fn open_file(dir: &Path, name: &str) -> io::Result<File> {
    let path = dir.join(name);
    if !PEAKS.contains(&name) {
        return File::open(path);
    }
    let both = File::options().read(true).write(true).open(&path);
    both.or_else(|_| File::open(path))
}
