//! Waiting awake, for what comes sooner than a processor that sleeps is awake again.
//!
//! A worker answers a small cell within some 30 us, and the supervisor's processor, which has gone to
//! sleep meanwhile, needs as long again to take notice; in a virtual machine more. As a hypervisor does
//! for such guests (Documentation/virt/kvm/halt-polling.rst), a session whose last cell was short looks
//! for a moment whether the next one is over before it goes to sleep.
//!
//! The moment is that of a cell as a whole: however often a guest that prints or calls wakes the
//! supervisor, it makes it spend no more, which nobody would count as the guest's.

use std::os::fd::BorrowedFd;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;

use crate::host::processors;
use crate::supervisor::wait::{wait, wait_awake};

/// How long one looks before one sleeps.
const MOMENT: Duration = Duration::from_micros(200);
/// How soon it must have come the last time: one who slept took notice later.
const SOON: Duration = Duration::from_micros(400);

/// What one waits for again and again.
#[derive(Debug, Default)]
pub struct Wakeful {
    /// Whether it came soon the last time.
    soon: bool,
}

impl Wakeful {
    /// As [`wait`], for something that began at `since`.
    pub fn wait<const N: usize>(
        &mut self,
        since: Instant,
        sources: [Option<(BorrowedFd, PollFlags)>; N],
        until: Option<Instant>,
    ) -> Result<[PollFlags; N], Errno> {
        let found = if self.soon && Busy::leave_room() {
            wait_awake(sources, since + MOMENT, until)
        } else {
            wait(sources, until)
        };
        self.learn(since.elapsed());
        found
    }

    fn learn(&mut self, passed: Duration) {
        self.soon = passed < SOON;
    }
}

/// What needs a processor: a cell that is under way in this process.
#[derive(Debug)]
pub struct Busy(());

static BUSY: AtomicUsize = AtomicUsize::new(0);

impl Busy {
    /// As long as this lives.
    pub fn new() -> Self {
        BUSY.fetch_add(1, Ordering::Relaxed);
        Self(())
    }

    fn leave_room() -> bool {
        // Once: to find out, files of its cgroups are read.
        static PROCESSORS: LazyLock<usize> = LazyLock::new(|| processors().get());
        suffice(*PROCESSORS, BUSY.load(Ordering::Relaxed))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Whether there is a processor for each cell, and one more for whoever waits for it. Where one has just
/// ended the next is counted on.
fn suffice(processors: usize, cells: usize) -> bool {
    processors >= 2 * cells.max(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn only_what_came_soon_is_waited_for_awake() {
        let mut wakeful = Wakeful::default();
        assert!(!wakeful.soon);
        wakeful.learn(SOON / 2);
        assert!(wakeful.soon);
        wakeful.learn(SOON);
        assert!(!wakeful.soon);
    }

    #[test]
    fn nobody_waits_awake_where_a_cell_needs_the_processor() {
        let rooms = [(0, 1), (0, 2), (1, 2), (2, 2), (2, 3), (2, 4), (3, 4)];
        let found = rooms.map(|(cells, processors)| suffice(processors, cells));
        assert_eq!(found, [false, true, true, false, false, true, false]);
    }

    #[test]
    fn what_comes_is_found_whether_one_is_awake_or_not() {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let waited = |wakeful: &mut Wakeful, patience| {
            let since = Instant::now();
            let until = since + patience;
            let readable = Some((reader.as_fd(), PollFlags::POLLIN));
            let waited = wakeful.wait(since, [None, readable], Some(until));
            let [nothing, found] = waited.unwrap();
            assert_eq!(nothing, PollFlags::empty());
            (found, Instant::now() >= until)
        };
        for soon in [false, true] {
            // Long after the moment in which one is awake.
            let nothing = waited(&mut Wakeful { soon }, 100 * MOMENT);
            assert_eq!(nothing, (PollFlags::empty(), true));
        }
        nix::unistd::write(&writer, b"x").unwrap();
        for soon in [false, true] {
            let (found, _) = waited(&mut Wakeful { soon }, Duration::from_secs(60));
            assert_eq!(found, PollFlags::POLLIN);
        }
    }
}
