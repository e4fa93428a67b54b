//! A cgroup's files, which stay open.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// More than any of the files has.
const LONGEST: usize = 1024;

/// Opening a file of a cgroup costs several times what reading it does, and it is read again and
/// again: by a session, and by the runs that the cgroup serves one after another.
#[derive(Debug, Default)]
pub struct OpenFiles {
    /// By their names, which are different in all hierarchies.
    open: RefCell<Vec<(&'static str, File)>>,
}

impl OpenFiles {
    /// The text of one of a directory's files.
    pub fn read(&self, dir: &Path, name: &'static str) -> Option<String> {
        let mut buffer = [0; LONGEST];
        // The kernel makes the text anew for each read at the beginning.
        let length = self.with(dir, name, |file| file.read_at(&mut buffer, 0));
        String::from_utf8(buffer[..length.ok()?].to_vec()).ok()
    }

    /// Resets a count. An error where the kernel cannot.
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
        let file = open_file(&dir.join(name))?;
        let done = act(&file);
        open.push((name, file));
        done
    }
}

/// To write too, where that is possible: on version 2 a peak is reset for the one open file that
/// was written to (Linux 6.12).
fn open_file(path: &Path) -> io::Result<File> {
    let both = File::options().read(true).write(true).open(path);
    both.or_else(|_| File::open(path))
}
