//! Which tasks there have been.

use std::collections::HashSet;

use sandfork::batch::TaskId;

/// The ids of tasks and of results, in 16 bytes each: millions of them are no matter.
///
/// By their digests, of which the last bit says what is known: an id that was met in the tasks is
/// never met as new again.
#[derive(Debug, Default)]
pub struct Ids(HashSet<u128>);

/// How an id is met in the tasks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Met {
    /// For the first time, and it has no result.
    New,
    /// For the first time, and it has one.
    Finished,
    /// Not for the first time.
    Again,
}

const BIT: u128 = 1;

impl Ids {
    /// There is a result of this one.
    pub fn finish(&mut self, id: &TaskId) {
        self.0.insert(id.digest() | BIT);
    }

    /// There is a task of this one.
    pub fn meet(&mut self, id: &TaskId) -> Met {
        let digest = id.digest();
        if !self.0.insert(digest & !BIT) {
            return Met::Again;
        }
        // Known as a task's from here on, it need not be known as a result's.
        if self.0.remove(&(digest | BIT)) {
            Met::Finished
        } else {
            Met::New
        }
    }

    /// How many there are.
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
