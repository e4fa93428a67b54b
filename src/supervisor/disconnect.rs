//! A worker that has closed its link: either it is ending or it broke the protocol.

use std::time::{Duration, Instant};

/// The longest time the kernel takes from closing a process's descriptors to reporting its end, on
/// an otherwise idle host.
const LAST_MOMENTS: Duration = Duration::from_millis(250);

/// A link that its worker has closed.
#[derive(Clone, Copy, Debug)]
pub struct Disconnect {
    look: Instant,
}

impl Disconnect {
    /// Records that the link closed now.
    pub fn new(now: Instant) -> Self {
        Self {
            look: now + LAST_MOMENTS,
        }
    }

    /// When to look at the worker again.
    pub fn next(&self) -> Instant {
        self.look
    }

    /// Whether it is time to look at the worker. A worker that is ending, on a host that gives it no
    /// processor time, is looked at again later.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = now >= self.look;
        if is_due {
            self.look = now + LAST_MOMENTS;
        }
        is_due
    }
}
