//! Writes the files of a request, and opens those that its guest left.

use std::fs::File;
use std::os::fd::AsFd;

use super::{Request, RunContext};
use crate::error::Error;
use crate::supervisor::error::SupervisorError;
use crate::supervisor::files::{GuestPath, WorkDir};
use crate::supervisor::spawn::Worker;

impl Request {
    /// Opens these files of the work directory when the run is over, however it ended, and calls `take` with the number
    /// of each in the list, and the open file with its size in bytes. A file that the guest did not leave, or that is
    /// no regular file, is an error. What was written there is the guest's: read no more than you have room for.
    #[must_use]
    pub fn fetch(
        self,
        paths: Vec<GuestPath>,
        take: impl Fn(usize, Result<(File, u64), Error>) + Send + Sync + 'static,
    ) -> Self {
        self.collect(move |work, _| {
            for (number, path) in paths.iter().enumerate() {
                take(number, work.open_read(path).map_err(Error::from));
            }
        })
    }
}

/// Writes files, as the guest's own, into the work directory of a worker that has run no guest code
/// yet.
pub fn put(
    files: &[(GuestPath, Vec<u8>)],
    worker: &Worker,
    context: &RunContext,
) -> Result<(), SupervisorError> {
    let Some(work) = worker.directories.first().filter(|_| !files.is_empty()) else {
        return Ok(());
    };
    let jail = context.jail;
    let work = WorkDir::new(work.as_fd(), &jail.worker.cwd, worker.ids);
    Ok(work.put(files)?)
}

/// The path of a script's file in the work directory: that by which the caller names it if it leads down from the
/// caller's directory, or else its last name. None if no file can have it.
pub fn script_place(path: &str) -> Option<GuestPath> {
    let at = |path: &str| GuestPath::parse_file(path).ok();
    let beneath = (!path.starts_with('/')).then(|| at(path)).flatten();
    beneath.or_else(|| at(path.rsplit('/').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_its_file_where_its_name_leads() {
        for (path, place) in [
            ("a/b.py", Some("a/b.py")),
            ("./b.py", Some("b.py")),
            ("/srv/tasks/b.py", Some("b.py")),
            ("../tasks/b.py", Some("b.py")),
            ("tasks/..", None),
        ] {
            let found = script_place(path).map(|place| place.to_string());
            assert_eq!(found.as_deref(), place, "{path}");
        }
    }
}
