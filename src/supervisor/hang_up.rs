//! A worker that has closed its link: it is ending, or it broke the protocol.

use std::time::{Duration, Instant};

use super::spawn::Worker;

/// How long the kernel takes at most, from closing what a process has open to telling its end, on a host
/// with nothing else to do.
const LAST_MOMENTS: Duration = Duration::from_millis(250);

/// A link that was closed by its worker.
#[derive(Clone, Copy, Debug)]
pub struct HangUp {
    look: Instant,
}

impl HangUp {
    /// It was closed now.
    pub fn new(now: Instant) -> Self {
        Self {
            look: now + LAST_MOMENTS,
        }
    }

    /// When to look at the worker again.
    pub fn next(&self) -> Instant {
        self.look
    }

    /// Whether it is time to look at the worker, and it goes on. One that is on its way out, on a host that gives it
    /// no processor, is looked at again.
    pub fn is_violation(&mut self, now: Instant, worker: &Worker) -> bool {
        if now < self.look {
            return false;
        }
        self.look = now + LAST_MOMENTS;
        !worker.proc.is_ending()
    }
}
