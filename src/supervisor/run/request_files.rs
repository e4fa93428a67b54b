//! Writes the files of a request into the work directory, and opens files that the guest left there.

use std::fs::File;
use std::os::fd::AsFd;

use super::{Request, RunContext};
use crate::error::Error;
use crate::supervisor::error::SupervisorError;
use crate::supervisor::files::{GuestPath, WorkDir};
use crate::supervisor::spawn::Worker;

impl Request {
    /// Opens these files of the work directory when the run is over, however it ended. Calls `take` with the index of
    /// each path in the list, and with the open file and its size in bytes. It is an error if the guest did not leave a
    /// regular file there. The guest decides what the file contains and how large it is: read no more than you have
    /// room for.
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

/// Writes files, owned by the guest, into the work directory of a worker that has run no guest code yet.
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

/// Returns the path of a script's file in the work directory: the caller's path if it is relative and stays beneath the
/// caller's directory, or else its file name. `None` if neither is a valid file path.
pub fn script_path(path: &str) -> Option<GuestPath> {
    let at = |path: &str| GuestPath::parse_file(path).ok();
    let beneath = (!path.starts_with('/')).then(|| at(path)).flatten();
    beneath.or_else(|| at(path.rsplit('/').next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_path_stays_in_the_work_directory() {
        for (path, place) in [
            ("a/b.py", Some("a/b.py")),
            ("./b.py", Some("b.py")),
            ("/srv/tasks/b.py", Some("b.py")),
            ("../tasks/b.py", Some("b.py")),
            ("tasks/..", None),
        ] {
            let found = script_path(path).map(|place| place.to_string());
            assert_eq!(found.as_deref(), place, "{path}");
        }
    }
}
