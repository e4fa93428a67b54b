//! Room on the host for runs under several policies, of which some need more than others.

use std::sync::Mutex;
use std::time::Duration;

use crate::capacity::Needs;
use crate::host::Headroom;
use crate::supervisor::Cancel;
use crate::waiters::{Waiters, lock};

/// What the runs of a batch may use together. Runs get in by their turn, so that small ones do not keep out a large one.
#[derive(Debug)]
pub struct Room {
    state: Mutex<State>,
    changed: Waiters,
}

#[derive(Debug)]
struct State {
    /// What so many jobs under the batch's own policy need: the caller has decided that there is as much.
    for_jobs: Needs,
    /// What there is. Measured for the first task under another policy: without one, no run has to wait.
    all: Option<Needs>,
    used: Needs,
    runs: usize,
    /// The next turn to be given, and the one that is next to get in.
    next: u64,
    turn: u64,
}

/// The policy that a run is under.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Under {
    /// The batch's.
    Batch,
    /// The task's own.
    Own,
}

/// The part of one run, until it is dropped.
#[must_use]
pub struct Part<'a> {
    room: &'a Room,
    needs: Needs,
}

/// How often a run that waits looks whether the batch was called off.
const LOOK: Duration = Duration::from_millis(100);

impl Room {
    /// The room of a batch with so many jobs, of which each needs so much.
    pub fn new(jobs: usize, each: Needs) -> Self {
        let state = State {
            for_jobs: each.times(jobs as u64),
            all: None,
            used: Needs::default(),
            runs: 0,
            next: 0,
            turn: 0,
        };
        Self {
            state: Mutex::new(state),
            changed: Waiters::default(),
        }
    }

    /// Waits until there is room for a run that needs so much, or no other run is left, or the batch was called off.
    pub fn enter(
        &self,
        needs: Needs,
        under: Under,
        cancel: &Cancel,
        measure: impl FnOnce() -> Headroom,
    ) -> Part<'_> {
        let mut state = lock(&self.state);
        if under == Under::Own && state.all.is_none() {
            // What runs already uses some of that, so it is at least as much as it seems.
            state.all = Some(Needs::from(measure()).or_more(state.for_jobs));
        }
        let own = state.next;
        state.next += 1;
        while !cancel.is_used() && !state.lets_in(own, needs) {
            state = self.changed.wait(state, LOOK);
        }
        state.turn = state.turn.max(own + 1);
        state.used = state.used.plus(needs);
        state.runs += 1;
        drop(state);
        self.changed.notify_all();
        Part { room: self, needs }
    }
}

impl State {
    fn lets_in(&self, turn: u64, needs: Needs) -> bool {
        let fits = |all| self.used.plus(needs).fit_in(all);
        turn == self.turn && (self.runs == 0 || self.all.is_none_or(fits))
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.room.state);
        state.used = state.used.minus(self.needs);
        state.runs -= 1;
        drop(state);
        self.room.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn needs(memory: u64) -> Needs {
        Needs {
            memory: memory * MIB,
            tasks: 1,
            descriptors: 1,
        }
    }

    fn headroom() -> Headroom {
        Headroom {
            memory: 100 * MIB,
            tasks: 100,
            descriptors: 100,
        }
    }

    /// Enters on another thread, which says so, and leaves when the sender is dropped.
    fn entering<'s>(
        threads: &'s thread::Scope<'s, '_>,
        room: &'s Room,
        memory: u64,
        cancel: &'s Cancel,
    ) -> (Receiver<()>, std::sync::mpsc::Sender<()>) {
        let (entered, has_entered) = channel();
        let (leave, left) = channel();
        threads.spawn(move || {
            let _part = room.enter(needs(memory), Under::Own, cancel, headroom);
            _ = entered.send(());
            let _: Result<(), _> = left.recv();
        });
        (has_entered, leave)
    }

    #[test]
    fn runs_of_the_batchs_policy_never_wait() {
        let (room, cancel) = (Room::new(2, needs(80)), Cancel::new().unwrap());
        let enter = || room.enter(needs(80), Under::Batch, &cancel, || unreachable!());
        let _all: Vec<_> = (0..3).map(|_| enter()).collect();
    }

    #[test]
    fn a_run_waits_for_what_its_own_policy_needs() {
        let (room, cancel) = (Room::new(4, needs(10)), Cancel::new().unwrap());
        let wait = Duration::from_millis(50);
        thread::scope(|threads| {
            let first = room.enter(needs(40), Under::Own, &cancel, headroom);
            let (large, large_leaves) = entering(threads, &room, 80, &cancel);
            large.recv_timeout(wait).unwrap_err();
            // It would fit, and comes later.
            let (small, small_leaves) = entering(threads, &room, 30, &cancel);
            small.recv_timeout(wait).unwrap_err();
            drop(first);
            large.recv().unwrap();
            small.recv_timeout(wait).unwrap_err();
            drop(large_leaves);
            small.recv().unwrap();
            drop(small_leaves);
        });
        // One that needs more than there is runs alone.
        drop(room.enter(needs(1000), Under::Own, &cancel, headroom));
        assert_eq!(lock(&room.state).used, Needs::default());
    }

    #[test]
    fn a_batch_that_is_called_off_lets_all_go_on() {
        let (room, cancel) = (Room::new(1, needs(10)), Cancel::new().unwrap());
        thread::scope(|threads| {
            let _first = room.enter(needs(90), Under::Own, &cancel, headroom);
            let (waits, _leaves) = entering(threads, &room, 90, &cancel);
            waits.recv_timeout(Duration::from_millis(50)).unwrap_err();
            cancel.cancel();
            waits.recv().unwrap();
        });
    }
}
