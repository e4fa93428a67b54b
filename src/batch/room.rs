//! Limits the resources that a batch's runs use together, if some of them run under policies with larger needs.

use std::sync::Mutex;
use std::time::Duration;

use crate::capacity::Needs;
use crate::host::Headroom;
use crate::supervisor::Cancel;
use crate::waiters::{Waiters, lock};

/// The resources of a batch. Runs enter in order, so that small runs do not starve a large one.
#[derive(Debug)]
pub struct Room {
    state: Mutex<State>,
    changed: Waiters,
}

#[derive(Debug)]
struct State {
    /// The needs of all jobs under the batch's policy. The caller has decided that the host can hold them.
    for_jobs: Needs,
    /// The resources of the host. Measured for the first task under its own policy; until then no run has to wait.
    all: Option<Needs>,
    used: Needs,
    runs: usize,
    /// The next ticket to issue, and the ticket that may enter next.
    next: u64,
    turn: u64,
}

/// The policy of a run.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Under {
    /// The batch's.
    Batch,
    /// The task's own.
    Own,
}

/// The resources of one run, which are held until this is dropped.
#[must_use]
pub struct Part<'a> {
    room: &'a Room,
    needs: Needs,
}

/// How often a waiting run checks whether the batch was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(100);

impl Room {
    /// Creates the room of a batch with this many jobs, each of which has these needs.
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

    /// Waits until the needs fit, no other run is active, or the batch was cancelled.
    pub fn enter(
        &self,
        needs: Needs,
        under: Under,
        cancel: &Cancel,
        measure: impl FnOnce() -> Headroom,
    ) -> Part<'_> {
        let mut state = lock(&self.state);
        if under == Under::Own && state.all.is_none() {
            // Active runs already use part of the host, so its total is at least what is measured.
            state.all = Some(Needs::from(measure()).or_more(state.for_jobs));
        }
        let own = state.next;
        state.next += 1;
        while !cancel.is_used() && !state.may_enter(own, needs) {
            state = self.changed.wait(state, CANCEL_POLL);
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
    fn may_enter(&self, turn: u64, needs: Needs) -> bool {
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

    /// Enters on another thread, which reports that and leaves when the sender is dropped.
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
    fn runs_under_the_batch_policy_never_wait() {
        let (room, cancel) = (Room::new(2, needs(80)), Cancel::new().unwrap());
        let enter = || room.enter(needs(80), Under::Batch, &cancel, || unreachable!());
        let _all: Vec<_> = (0..3).map(|_| enter()).collect();
    }

    #[test]
    fn run_waits_for_the_needs_of_its_policy() {
        let (room, cancel) = (Room::new(4, needs(10)), Cancel::new().unwrap());
        let wait = Duration::from_millis(50);
        thread::scope(|threads| {
            let first = room.enter(needs(40), Under::Own, &cancel, headroom);
            let (large, large_leaves) = entering(threads, &room, 80, &cancel);
            large.recv_timeout(wait).unwrap_err();
            // It would fit, but must not overtake.
            let (small, small_leaves) = entering(threads, &room, 30, &cancel);
            small.recv_timeout(wait).unwrap_err();
            drop(first);
            large.recv().unwrap();
            small.recv_timeout(wait).unwrap_err();
            drop(large_leaves);
            small.recv().unwrap();
            drop(small_leaves);
        });
        // A run that needs more than the host has runs alone.
        drop(room.enter(needs(1000), Under::Own, &cancel, headroom));
        assert_eq!(lock(&room.state).used, Needs::default());
    }

    #[test]
    fn cancelled_batch_admits_all_waiting_runs() {
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
