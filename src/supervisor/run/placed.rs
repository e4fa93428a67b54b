//! The files that a request brings with it.

use std::os::fd::AsFd;

use super::Place;
use crate::supervisor::error::SupervisorError;
use crate::supervisor::files::{GuestPath, WorkDir};
use crate::supervisor::spawn::Worker;

/// Puts files into the work directory of a worker that has run no guest code yet, as the guest's own.
pub fn put(
    files: &[(GuestPath, Vec<u8>)],
    worker: &Worker,
    place: &Place,
) -> Result<(), SupervisorError> {
    let Some(work) = worker.directories.first().filter(|_| !files.is_empty()) else {
        return Ok(());
    };
    let (total, room) = (
        files
            .iter()
            .map(|(_, contents)| contents.len() as u64)
            .sum(),
        place.work_size,
    );
    // Not every work directory has a quota that refuses more.
    if total > room {
        return Err(SupervisorError::FilesTooLarge { total, room });
    }
    let jail = place.jail;
    let work = WorkDir::new(work.as_fd(), &jail.worker.cwd, jail.identity.drop_to);
    Ok(work.put(files)?)
}
