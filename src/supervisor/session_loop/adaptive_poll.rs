//! Adaptive polling: spins briefly before it sleeps, if the event is likely to arrive sooner than a sleeping processor
//! wakes up.
//!
//! A worker answers a small cell within some 30 us. The supervisor's processor, asleep meanwhile,
//! takes as long again to wake up, and longer in a virtual machine. Hypervisors poll for such
//! guests (Documentation/virt/kvm/halt-polling.rst). Likewise, a session whose last cell was short
//! polls for a moment before it sleeps.
//!
//! The spinning time is bounded per cell: a guest that wakes the supervisor often, by printing or by calling tools,
//! makes it spin no longer. The guest would not be charged for that time.

use std::os::fd::BorrowedFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use crate::host::processors;
use crate::supervisor::clock;
use crate::supervisor::wait::{wait, wait_awake};

/// The longest time to spin before sleeping.
const SPIN_FOR: Duration = Duration::from_micros(200);
/// A wait counts as short if it took less than this. It exceeds the spinning time because a wait that sleeps notices
/// its event later.
const SHORT_WAIT: Duration = Duration::from_micros(400);

/// The state of repeated waits for one kind of event.
#[derive(Debug, Default)]
pub struct AdaptivePoll {
    /// Whether the last wait was short.
    was_short: bool,
}

impl AdaptivePoll {
    /// Waits as [`wait`] does, for an event of something that began at `since`.
    pub fn wait<const N: usize>(
        &mut self,
        since: Instant,
        sources: [Option<(BorrowedFd, PollFlags)>; N],
        until: Option<Instant>,
    ) -> Result<[PollFlags; N], Errno> {
        let found = if self.was_short && Busy::has_spare_processor() {
            wait_awake(sources, since + SPIN_FOR, until)
        } else {
            wait(sources, until)
        };
        self.learn(clock::now() - since);
        found
    }

    fn learn(&mut self, passed: Duration) {
        self.was_short = passed < SHORT_WAIT;
    }
}

/// A running cell of this process, which needs a processor.
#[derive(Debug)]
pub struct Busy(());

static BUSY: AtomicUsize = AtomicUsize::new(0);

impl Busy {
    /// Counts a running cell until the value is dropped.
    pub fn new() -> Self {
        BUSY.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    fn has_spare_processor() -> bool {
        // Computed once, because this reads files of the process's cgroups.
        static PROCESSORS: LazyLock<usize> = LazyLock::new(|| processors().get());
        is_enough(*PROCESSORS, BUSY.load(Ordering::Relaxed))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether there are two processors for each cell: one for the cell, one for the thread that waits for it. Without a
/// running cell, the next cell counts.
fn is_enough(processors: usize, cells: usize) -> bool {
    processors >= 2 * cells.max(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn only_a_short_wait_enables_spinning() {
        let mut poll = AdaptivePoll::default();
        assert!(!poll.was_short);
        poll.learn(SHORT_WAIT / 2);
        assert!(poll.was_short);
        poll.learn(SHORT_WAIT);
        assert!(!poll.was_short);
    }

    #[test]
    fn spinning_needs_a_spare_processor() {
        let rooms = [(0, 1), (0, 2), (1, 2), (2, 2), (2, 3), (2, 4), (3, 4)];
        let found = rooms.map(|(cells, processors)| is_enough(processors, cells));
        assert_eq!(found, [false, true, true, false, false, true, false]);
    }

    #[test]
    fn event_is_found_with_and_without_spinning() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let waited = |poll: &mut AdaptivePoll, patience| {
            let since = Instant::now();
            let until = since + patience;
            let readable = Some((reader.as_fd(), PollFlags::POLLIN));
            let waited = poll.wait(since, [None, readable], Some(until));
            let [nothing, found] = waited.unwrap();
            assert_eq!(nothing, PollFlags::empty());
            (found, Instant::now() >= until)
        };
        for was_short in [false, true] {
            // Much longer than the spinning time.
            let nothing = waited(&mut AdaptivePoll { was_short }, 100 * SPIN_FOR);
            assert_eq!(nothing, (PollFlags::empty(), true));
        }
        nix::unistd::write(&writer, b"x").unwrap();
        for was_short in [false, true] {
            let (found, _) = waited(&mut AdaptivePoll { was_short }, Duration::from_secs(60));
            assert_eq!(found, PollFlags::POLLIN);
        }
    }
}
