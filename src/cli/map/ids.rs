//! The ids of tasks and results seen so far.

use std::collections::HashSet;

use crate::batch::TaskId;

/// The ids of tasks and of results, in 16 bytes each, so that millions fit into memory.
///
/// They are stored by digest. The last bit records the source: an id that was seen in a task is
/// never reported as new again.
#[derive(Debug, Default)]
pub struct Ids(HashSet<u128>);

/// The state of a task's id.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Met {
    /// The first task with this id, and it has no result.
    New,
    /// The first task with this id, and it has a result.
    Finished,
    /// A repeated id.
    Again,
}

const BIT: u128 = 1;

impl Ids {
    /// Records a result with this id.
    pub fn finish(&mut self, id: &TaskId) {
        self.0.insert(id.digest() | BIT);
    }

    /// Records a task with this id. Returns the id's earlier state.
    pub fn meet(&mut self, id: &TaskId) -> Met {
        let digest = id.digest();
        if !self.0.insert(digest & !BIT) {
            return Met::Again;
        }
        // Once recorded for a task, it need not be recorded for a result.
        if self.0.remove(&(digest | BIT)) {
            Met::Finished
        } else {
            Met::New
        }
    }

    /// The number of ids.
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::Met::{Again, Finished, New};
    use super::*;

    #[test]
    fn an_id_is_met_once() {
        let mut ids = Ids::default();
        let [one, two, three] = [1, 2, 3].map(TaskId::from);
        ids.finish(&one);
        ids.finish(&three);
        ids.finish(&three);
        assert_eq!(ids.count(), 2);
        let met = [&one, &two, &one, &two, &three, &three].map(|id| ids.meet(id));
        assert_eq!(met, [Finished, New, Again, Again, Finished, Again]);
        assert_eq!(ids.count(), 3);
    }
}
