//! Decides when to give up a batch whose tasks repeatedly get no sandbox.

use super::Done;
use crate::error::{Error, ErrorKind};

/// After this many tasks in a row got no sandbox, despite all their attempts, later tasks will not get one either, so
/// the batch should be stopped.
pub const LOST_IN_A_ROW: u32 = 16;

/// Counts consecutive tasks that got no sandbox.
#[derive(Debug, Default)]
pub struct FailureStreak(u32);

impl FailureStreak {
    /// Counts a task. If it completes a streak that is too long, returns its error.
    pub fn last_of_too_many<'a>(&mut self, done: &'a Done) -> Option<&'a Error> {
        let error = done.error();
        match error.map(Error::kind) {
            None => self.0 = 0,
            // An invalid request says nothing about the host.
            Some(ErrorKind::Request) => return None,
            Some(_) => self.0 += 1,
        }
        error.filter(|_| self.0 == LOST_IN_A_ROW)
    }
}
