//! Writes whole files.

use std::io::Write;

use super::{Act, Contents, FileError, GuestPath, Parents, WorkDir};
use sandfork_jail::sys::{errno_of, write_signals};

impl WorkDir<'_> {
    /// Writes files, with their parent directories, as the guest's own. If two have the same path, the later one wins.
    ///
    /// # Errors
    ///
    /// If a file cannot be written. Earlier files have been written by then.
    pub fn put(&self, files: &[(GuestPath, Vec<u8>)]) -> Result<(), FileError> {
        let Some((first, _)) = files.first() else {
            return Ok(());
        };
        // Switches to the guest's user once for all files, because switching takes a thread.
        self.as_guest(first, Act::Write, || {
            let own = WorkDir {
                guest: None,
                ..*self
            };
            let mut files = files.iter();
            files.try_for_each(|(path, contents)| own.put_one(path, contents))
        })
    }

    fn put_one(&self, path: &GuestPath, contents: &[u8]) -> Result<(), FileError> {
        if let Some((above, _)) = path.split() {
            self.make_dir(&above, Parents::Made)?;
        }
        let mut file = self.open_write(path, Contents::Replaced)?;
        write_signals::as_errors(|| file.write_all(contents))
            .map_err(|error| FileError::failed(path, Act::Write, errno_of(error)))
    }
}
