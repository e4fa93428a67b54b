//! A session whose worker is copied, or that is to be paused: what is asked for then waits for its next worker.

use std::mem;
use std::sync::Weak;

use super::queue::Closed;
use super::server::{CLOSED, ProgramServer};

impl ProgramServer<'_> {
    /// Whether programs run, or are about to, or directories are watched.
    pub fn is_used(&self) -> bool {
        self.is_busy() || self.queue.is_used()
    }

    /// Leaves what is asked for from now on to the session's next worker, unless there is something already. What watches
    /// directories goes on meanwhile.
    pub fn rest(&mut self) -> bool {
        if self.is_busy() {
            return false;
        }
        let taken = self.queue.take_watches();
        self.rests = taken.is_some();
        self.watches = taken.unwrap_or_default();
        self.rests
    }

    /// Serves what is asked for from now on.
    pub fn go_on(&mut self) {
        self.rests = false;
        self.closed = Closed::Ended(CLOSED.to_owned());
        self.queue.put_back(mem::take(&mut self.watches));
    }

    /// Ends what watched directories before it rested.
    pub fn end_watches(&mut self, why: &str) {
        for watch in mem::take(&mut self.watches)
            .iter()
            .filter_map(Weak::upgrade)
        {
            watch.end(why);
        }
    }

    /// Ends the starter, so that the worker can be copied. Returns whether there was one, and the name of a program
    /// if one runs.
    pub fn dismiss(&mut self) -> Result<bool, String> {
        let running = self.live.values().map(|live| &live.process);
        let waiting = self.waiting.iter().map(|(_, start)| &start.process);
        match running.chain(waiting).next() {
            Some(process) => Err(process.argv()[0].clone()),
            None => Ok(self.link.take().is_some()),
        }
    }
}

/// Every end of a loop ends its programs' handles, unless the session is paused.
impl Drop for ProgramServer<'_> {
    fn drop(&mut self) {
        if self.rests {
            self.go_on();
        } else {
            self.queue.close(&self.closed);
        }
    }
}
