//! Holds back requests while a session's worker is copied or is about to be paused, until the session's next worker
//! serves them.

use std::mem;
use std::sync::Weak;

use super::queue::Closed;
use super::server::{CLOSED, ProgramServer};

impl ProgramServer<'_> {
    /// Whether programs run or are being started, or directories are watched.
    pub fn is_used(&self) -> bool {
        self.is_busy() || self.queue.is_used()
    }

    /// Leaves further requests to the session's next worker. Returns false if a request is pending or a program runs.
    /// Directory watches continue meanwhile.
    pub fn rest(&mut self) -> bool {
        if self.is_busy() {
            return false;
        }
        let taken = self.queue.take_watches();
        self.rests = taken.is_some();
        self.watches = taken.unwrap_or_default();
        self.rests
    }

    /// Serves requests again.
    pub fn go_on(&mut self) {
        self.rests = false;
        self.closed = Closed::Ended(CLOSED.to_owned());
        self.queue.put_back(mem::take(&mut self.watches));
    }

    /// Ends the directory watches that were active before [`rest`](Self::rest).
    pub fn end_watches(&mut self, why: &str) {
        for watch in mem::take(&mut self.watches)
            .iter()
            .filter_map(Weak::upgrade)
        {
            watch.end(why);
        }
    }

    /// Ends the starter process, so that the worker can be copied. Returns whether there was one. The error is the name
    /// of a program that is running.
    pub fn dismiss(&mut self) -> Result<bool, String> {
        let running = self.live.values().map(|live| &live.process);
        let waiting = self.waiting.iter().map(|(_, start)| &start.process);
        match running.chain(waiting).next() {
            Some(process) => Err(process.argv()[0].clone()),
            None => Ok(self.link.take().is_some()),
        }
    }
}

/// Ends the programs and watches when the loop ends, unless the session is being paused.
impl Drop for ProgramServer<'_> {
    fn drop(&mut self) {
        if self.rests {
            self.go_on();
        } else {
            self.queue.close(&self.closed);
        }
    }
}
