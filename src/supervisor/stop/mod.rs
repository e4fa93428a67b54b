//! Stops all guests of this process, and their clock, while the command is stopped (Ctrl-Z).
//!
//! Guests are held by ptrace(2), which works at every level and without a cgroup. If guests got a stop signal instead,
//! a timer or another process of a guest could continue it, and it would compute while its clock is stopped. If a guest
//! cannot be held, the clock keeps running.

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

/// The guests that run code, by number.
static GUESTS: Mutex<BTreeMap<u64, Guest>> = Mutex::new(BTreeMap::new());

/// The root processes of a guest: all its processes descend from them.
#[derive(Clone, Debug)]
struct Guest {
    main: (Pid, Arc<OwnedFd>),
    above: (Pid, Arc<OwnedFd>),
}

impl Guest {
    /// Returns the main process and the process above it, which runs no guest code, as far as they live. A pid is valid
    /// only while its process lives.
    fn roots(&self) -> (Option<Pid>, Option<Pid>) {
        let live = |(pid, handle): &(Pid, Arc<OwnedFd>)| {
            pidfd::is_there(handle.as_fd()).is_ok().then_some(*pid)
        };
        (live(&self.main), live(&self.above))
    }
}

/// Registers a worker as a guest that is stopped with the command, until this value is dropped. While the command is
/// stopped, registering and dropping block.
#[derive(Debug)]
pub struct Stoppable(u64);

impl Stoppable {
    /// Registers this worker.
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

/// Holds all guests, and stops their clock, while `stopped` runs. If a guest cannot be held, calls `report` first; then
/// all guests and the clock keep running.
pub fn hold_guests(report: impl FnOnce(&str), stopped: impl FnOnce()) {
    static HOLDER: Mutex<Option<Holder>> = Mutex::new(None);
    let mut holder = lock(&HOLDER);
    let guests = lock(&GUESTS);
    let stopped_clock = StoppedClock::begin();
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
            // The clock first, so that guests are charged from the moment they run.
            drop(stopped_clock);
            holder.release();
        }
        Err(error) => {
            stopped_clock.cancel();
            report(&error);
            stopped();
            // The clock kept running, so the time without a beat must count.
            clock::beat(Beat::Due);
        }
    }
}
