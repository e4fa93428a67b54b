//! Writes the files of a request.

use std::os::fd::AsFd;

use super::RunContext;
use crate::supervisor::error::SupervisorError;
use crate::supervisor::files::{GuestPath, WorkDir};
use crate::supervisor::spawn::Worker;

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
    let (total, room) = (
        files
            .iter()
            .map(|(_, contents)| contents.len() as u64)
            .sum(),
        context.limits.work_size(),
    );
    // Some work directories have no quota that would refuse more.
    if total > room {
        return Err(SupervisorError::FilesTooLarge { total, room });
    }
    let jail = context.jail;
    let work = WorkDir::new(work.as_fd(), &jail.worker.cwd, worker.ids);
    Ok(work.put(files)?)
}
