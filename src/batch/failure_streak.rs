//! Decides when to give up a batch whose tasks repeatedly get no sandbox.

use super::Done;
use crate::error::{Error, ErrorKind};

/// How many tasks in a row may get no sandbox, after all their attempts. Later tasks will not get
/// one either, so the consumer should stop the batch.
pub const LOST_IN_A_ROW: u32 = 16;

/// The number of consecutive tasks that got no sandbox.
#[derive(Debug, Default)]
pub struct FailureStreak(u32);

impl FailureStreak {
    /// Counts one more task. If that makes too many in a row, returns why it got no sandbox.
    pub fn last_of_too_many<'a>(&mut self, done: &'a Done) -> Option<&'a Error> {
        let error = done.error();
        match error.map(Error::kind) {
            None => self.0 = 0,
            // It says nothing about the host, whether it got a sandbox or not.
            Some(ErrorKind::Request) => return None,
            Some(_) => self.0 += 1,
        }
        error.filter(|_| self.0 == LOST_IN_A_ROW)
    }
}
