//! A session whose worker is copied, or that is to be paused: what is asked for then waits for its next worker.

use super::host::Host;

impl Host<'_> {
    /// Whether programs run, or are about to, or directories are watched.
    pub fn is_used(&self) -> bool {
        self.is_busy() || self.queue.is_used()
    }

    /// Ends what watches directories.
    pub fn end_watches(&self, why: &str) {
        self.queue.end_watches(why);
    }

    /// Serves what is asked for from now on.
    pub fn go_on(&mut self) {
        self.rests = false;
    }

    /// Leaves what is asked for from now on to the session's next worker, unless there is something already.
    pub fn rest(&mut self) -> bool {
        self.rests = !self.is_used();
        self.rests
    }

    /// Ends the starter, so that the worker can be copied. Returns whether there was one, and the name of a program
    /// if one runs.
    pub fn dismiss(&mut self) -> Result<bool, String> {
        let running = self.live.values().map(|live| &live.process);
        let waiting = self.waiting.iter().map(|start| &start.process);
        match running.chain(waiting).next() {
            Some(process) => Err(process.argv()[0].clone()),
            None => Ok(self.link.take().is_some()),
        }
    }
}
