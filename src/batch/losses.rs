//! When to give up a batch whose tasks get no sandbox, one after the other.

use super::Verdict;
use crate::error::Error;

/// How many tasks in a row may get no sandbox, each tried as often as it is: then none will, and whoever
/// collects the results does well to have no more begun.
pub const LOST_IN_A_ROW: u32 = 16;

/// The tasks in a row that got no sandbox.
#[derive(Debug, Default)]
pub struct Losses(u32);

impl Losses {
    /// Counts one more task. It is the last of too many if there is an error: why it got no sandbox.
    pub fn last_of_too_many<'a>(&mut self, verdict: &'a Verdict) -> Option<&'a Error> {
        match verdict {
            Verdict::Outcome(_) => {
                self.0 = 0;
                None
            }
            Verdict::Infrastructure(error) => {
                self.0 += 1;
                (self.0 == LOST_IN_A_ROW).then_some(error)
            }
        }
    }
}
