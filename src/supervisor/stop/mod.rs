//! Stops every guest of this process, and its clock, while the command is stopped (Ctrl-Z).
//!
//! Guests are held by ptrace(2), at every level and without a cgroup. A guest that got a stop signal
//! instead could let a timer or another process continue it, and would compute while its clock stands. If a
//! guest cannot be held, the clock goes on.

mod holder;

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex};

use nix::unistd::Pid;
use sandfork_jail::sys::pidfd;

use self::holder::Holder;
use super::clock::{self, Beat, StoppedClock};
use super::spawn::Worker;
use crate::waiters::lock;

/// Guests that run code, by number.
static GUESTS: Mutex<BTreeMap<u64, Guest>> = Mutex::new(BTreeMap::new());

/// The processes beneath which all processes of a guest are.
#[derive(Clone, Debug)]
struct Guest {
    main: (Pid, Arc<OwnedFd>),
    above: (Pid, Arc<OwnedFd>),
}

impl Guest {
    /// The main process, if it lives, and the process above it, which runs no code of the guest. A number
    /// is only good while its process lives.
    fn roots(&self) -> (Option<Pid>, Option<Pid>) {
        let live = |(pid, handle): &(Pid, Arc<OwnedFd>)| {
            pidfd::is_there(handle.as_fd()).is_ok().then_some(*pid)
        };
        (live(&self.main), live(&self.above))
    }
}

/// Marks a worker as a guest that is stopped with the command, until the value is dropped. While a stop is
/// under way, no guest begins and none ends.
#[derive(Debug)]
pub struct Stoppable(u64);

impl Stoppable {
    /// Marks this worker.
    pub fn new(worker: &Worker) -> Self {
        let guest = Guest {
            main: (Pid::from_raw(worker.proc.pid), Arc::clone(&worker.process)),
            above: (Pid::from_raw(worker.above_pid), Arc::clone(&worker.above)),
        };
        let mut guests = lock(&GUESTS);
        let number = guests.last_key_value().map_or(0, |(last, _)| last + 1);
        guests.insert(number, guest);
        Self(number)
    }
}

impl Drop for Stoppable {
    fn drop(&mut self) {
        lock(&GUESTS).remove(&self.0);
    }
}

/// Holds every guest still while `stopped` runs, and stops their clock. Calls `report` first if a guest
/// cannot be held: they all go on then, and so does the clock.
pub fn hold_guests(report: impl FnOnce(&str), stopped: impl FnOnce()) {
    static HOLDER: Mutex<Option<Holder>> = Mutex::new(None);
    let mut holder = lock(&HOLDER);
    let guests = lock(&GUESTS);
    let standing = StoppedClock::begin();
    let running: Vec<Guest> = guests.values().cloned().collect();
    if running.is_empty() {
        return stopped();
    }
    let holder = match &mut *holder {
        Some(holder) => Ok(&*holder),
        empty => Holder::start().map(|made| &*empty.insert(made)),
    };
    let held = holder.and_then(|holder| holder.hold(running).map(|()| holder));
    match held {
        Ok(holder) => {
            stopped();
            // The clock first: a guest that goes on is charged for it.
            drop(standing);
            holder.release();
        }
        Err(error) => {
            standing.cancel();
            report(&error);
            stopped();
            // The clock has gone on, so the pulse is not to leave out the time without a beat.
            clock::beat(Beat::Due);
        }
    }
}
