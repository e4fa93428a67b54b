//! Wrappers of poll(2) for several descriptors, some of which may be absent.

use std::os::fd::BorrowedFd;
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::clock;

/// Waits until one of these descriptors is ready, until `until`, or until a signal arrives. Returns the events of each
/// descriptor (poll(2)).
pub fn wait<const N: usize>(
    sources: [Option<(BorrowedFd, PollFlags)>; N],
    until: Option<Instant>,
) -> Result<[PollFlags; N], Errno> {
    wait_by(sources, |fds| poll(fds, timeout(until)))
}

/// Waits until a descriptor is readable or until `until`, and continues after signals. Returns whether it is readable.
pub fn wait_readable(fd: BorrowedFd, until: Instant) -> Result<bool, Errno> {
    let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
    loop {
        match poll(&mut fds, timeout(Some(until))) {
            Err(Errno::EINTR) => {}
            ready => return ready.map(|count| count > 0),
        }
    }
}

/// Waits as `wait` does, but spins until `awake` before it sleeps. While it spins, it yields the processor to other
/// threads.
pub fn wait_awake<const N: usize>(
    sources: [Option<(BorrowedFd, PollFlags)>; N],
    awake: Instant,
    until: Option<Instant>,
) -> Result<[PollFlags; N], Errno> {
    wait_by(sources, |fds| {
        while clock::now() < awake {
            let ready = poll(fds, PollTimeout::ZERO)?;
            if ready > 0 {
                return Ok(ready);
            }
            thread::yield_now();
        }
        poll(fds, timeout(until))
    })
}

fn wait_by<const N: usize>(
    sources: [Option<(BorrowedFd, PollFlags)>; N],
    wait: impl FnOnce(&mut [PollFd]) -> Result<libc::c_int, Errno>,
) -> Result<[PollFlags; N], Errno> {
    let mut fds = Vec::with_capacity(N);
    fds.extend(
        sources
            .iter()
            .flatten()
            .map(|(fd, events)| PollFd::new(*fd, *events)),
    );
    let mut found = [PollFlags::empty(); N];
    match wait(&mut fds) {
        Err(Errno::EINTR) => return Ok(found),
        other => other?,
    };
    let places = found.iter_mut().zip(&sources);
    let places = places.filter_map(|(found, source)| source.and(Some(found)));
    for (found, fd) in places.zip(&fds) {
        *found = fd.revents().unwrap_or(PollFlags::POLLERR);
    }
    Ok(found)
}

fn timeout(until: Option<Instant>) -> PollTimeout {
    let Some(until) = until else {
        return PollTimeout::NONE;
    };
    let left = until.saturating_duration_since(clock::now());
    // Rounded up, so that the last fraction of a millisecond does not spin with a timeout of zero.
    PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
}

/// Whether there is data to read, or an EOF or error that a read would report.
pub fn is_readable(events: PollFlags) -> bool {
    !(events - PollFlags::POLLOUT).is_empty()
}
