//! Waits for several descriptors, some of which may be absent.

use std::cell::Cell;
use std::future::poll_fn;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::rc::Rc;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::reactor;
use super::reactor::{Reactor, Watch};
use crate::supervisor::clock;

/// How often a descriptor is looked at that epoll(7) cannot watch, because the user has no watch left
/// (`fs.epoll.max_user_watches`).
const TICK: Duration = Duration::from_millis(10);

/// A descriptor, and the events of poll(2) to wait for.
pub type Source<'fd> = Option<(BorrowedFd<'fd>, PollFlags)>;

/// Waits once: see [`Waits::any`].
pub async fn wait<const N: usize>(
    sources: [Source<'_>; N],
    until: Option<Instant>,
) -> Result<[PollFlags; N], Errno> {
    Waits::default().any(sources, None, until).await
}

/// Waits repeatedly for the same few descriptors. A driver watches them also between two waits, so that
/// waiting again costs nothing: none of them may be closed before the next wait, without it, or the drop.
#[derive(Debug)]
pub struct Waits<const N: usize> {
    slots: [Option<Slot>; N],
    /// Whether the task waits for these descriptors now.
    waiting: Rc<Cell<bool>>,
}

#[derive(Debug)]
struct Slot {
    reactor: Rc<Reactor>,
    number: RawFd,
    watch: Rc<Watch>,
}

impl<const N: usize> Default for Waits<N> {
    fn default() -> Self {
        Self {
            slots: [const { None }; N],
            waiting: Rc::default(),
        }
    }
}

impl<const N: usize> Waits<N> {
    /// Waits until one of these descriptors is ready, until `until`, or until a signal arrives or the task is
    /// woken. Returns the events of each. Does not sleep before `awake`.
    pub async fn any(
        &mut self,
        sources: [Source<'_>; N],
        awake: Option<Instant>,
        until: Option<Instant>,
    ) -> Result<[PollFlags; N], Errno> {
        let Some(reactor) = reactor() else {
            return poll_by(sources, |fds| sleep(fds, awake, until));
        };
        let mut is_watched = true;
        for (slot, source) in self.slots.iter_mut().zip(sources) {
            let same = slot.as_ref().map(|slot| slot.number) == source.map(|it| it.0.as_raw_fd());
            if !same {
                *slot = source.map(|(fd, _)| Slot {
                    reactor: Rc::clone(&reactor),
                    number: fd.as_raw_fd(),
                    watch: Rc::new(Watch::new(reactor.current(), &self.waiting)),
                });
            }
            if let (Some(slot), Some((_, events))) = (slot, source) {
                slot.watch.found.set(PollFlags::empty());
                is_watched &= reactor.watch(slot.number, &slot.watch, events).is_ok();
            }
        }
        let until = if is_watched {
            until
        } else {
            let tick = clock::now() + TICK;
            Some(until.map_or(tick, |until| until.min(tick)))
        };
        self.waiting.set(true);
        let mut has_slept = false;
        poll_fn(|_| {
            if has_slept {
                return Poll::Ready(());
            }
            has_slept = true;
            reactor.sleep(awake, until);
            Poll::Pending
        })
        .await;
        self.waiting.set(false);
        if !is_watched {
            return poll_by(sources, |fds| poll(fds, PollTimeout::ZERO));
        }
        let found = |slot: &Option<Slot>| slot.as_ref().map(|slot| slot.watch.found.get());
        Ok(self
            .slots
            .each_ref()
            .map(|slot| found(slot).unwrap_or(PollFlags::empty())))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.reactor.forget(self.number, &self.watch);
    }
}

/// Sleeps in poll(2), but not before `awake`: it yields the processor to other threads meanwhile.
fn sleep(
    fds: &mut [PollFd],
    awake: Option<Instant>,
    until: Option<Instant>,
) -> Result<libc::c_int, Errno> {
    while awake.is_some_and(|awake| clock::now() < awake) {
        let ready = poll(fds, PollTimeout::ZERO)?;
        if ready > 0 {
            return Ok(ready);
        }
        thread::yield_now();
    }
    poll(fds, patience(until))
}

fn poll_by<const N: usize>(
    sources: [Source<'_>; N],
    wait: impl FnOnce(&mut [PollFd]) -> Result<libc::c_int, Errno>,
) -> Result<[PollFlags; N], Errno> {
    let (places, mut fds): (Vec<usize>, Vec<PollFd>) = sources
        .into_iter()
        .enumerate()
        .filter_map(|(place, source)| {
            let (fd, events) = source?;
            Some((place, PollFd::new(fd, events)))
        })
        .unzip();
    let mut found = [PollFlags::empty(); N];
    match wait(&mut fds) {
        Err(Errno::EINTR) => return Ok(found),
        other => other?,
    };
    for (place, fd) in places.into_iter().zip(&fds) {
        found[place] = fd.revents().unwrap_or(PollFlags::POLLERR);
    }
    Ok(found)
}

/// How long to sleep, at the longest.
pub(super) fn patience(until: Option<Instant>) -> PollTimeout {
    let Some(until) = until else {
        return PollTimeout::NONE;
    };
    let left = until.saturating_duration_since(clock::now());
    if left.is_zero() {
        return PollTimeout::ZERO;
    }
    // Rounded up, so that it does not spin with a timeout of zero milliseconds.
    PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
}

/// Whether there is data to read, or an end or an error that reading would report.
pub fn is_readable(events: PollFlags) -> bool {
    !(events - PollFlags::POLLOUT).is_empty()
}
