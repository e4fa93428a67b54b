//! Tracks the ids of tasks and results seen so far.

use std::collections::HashSet;

use crate::batch::TaskId;

/// The ids of tasks and of results, in 16 bytes each, so that millions fit into memory.
///
/// Ids are stored as digests. The last bit records the source: an id that was seen in a task is never reported as new
/// again.
#[derive(Debug, Default)]
pub struct Ids(HashSet<u128>);

/// The state of a task's id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum IdState {
    /// The first task with this id, and it has no result.
    New,
    /// The first task with this id, and it has a result.
    Finished,
    /// A repeated id.
    Repeated,
}

const BIT: u128 = 1;

impl Ids {
    /// Records a result with this id.
    pub fn finish(&mut self, id: &TaskId) {
        self.0.insert(id.digest() | BIT);
    }

    /// Records a task with this id. Returns the id's previous state.
    pub fn record_task(&mut self, id: &TaskId) -> IdState {
        let digest = id.digest();
        if !self.0.insert(digest & !BIT) {
            return IdState::Repeated;
        }
        // Once recorded for a task, the id need not be recorded for a result.
        if self.0.remove(&(digest | BIT)) {
            IdState::Finished
        } else {
            IdState::New
        }
    }

    /// Returns the number of ids.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::IdState::{Finished, New, Repeated};
    use super::*;

    #[test]
    fn id_is_new_only_once() {
        let mut ids = Ids::default();
        let [one, two, three] = [1, 2, 3].map(TaskId::from);
        ids.finish(&one);
        ids.finish(&three);
        ids.finish(&three);
        assert_eq!(ids.count(), 2);
        let met = [&one, &two, &one, &two, &three, &three].map(|id| ids.record_task(id));
        assert_eq!(met, [Finished, New, Repeated, Repeated, Finished, Repeated]);
        assert_eq!(ids.count(), 3);
    }
}
