//! What a run waits for: descriptors, the clock, and whichever comes first.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::{LAST_MOMENTS, Link, Running};
use crate::supervisor::drain::Stream;
use crate::supervisor::run::Cancel;

impl Running<'_> {
    /// Waits until there is something to do.
    pub(super) fn wait(&self, cancel: Option<&Cancel>) -> Result<Ready, Errno> {
        let outgoing = if self.sent < self.outgoing.len() {
            PollFlags::POLLIN | PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        };
        // A run that is ending is not cancelled again: the handle stays readable.
        let cancel = cancel.filter(|_| self.stop.is_none() && self.exit.is_none());
        let data = (self.data == Link::Open).then_some(&self.worker.data);
        let sources: [(Source, Option<BorrowedFd>, PollFlags); 5] = [
            (
                Source::Monitor,
                Some(self.worker.monitor.as_fd()),
                PollFlags::POLLIN,
            ),
            (Source::Data, data.map(AsFd::as_fd), outgoing),
            (
                Source::Stdout,
                self.output.pipe(Stream::Stdout).map(AsFd::as_fd),
                PollFlags::POLLIN,
            ),
            (
                Source::Stderr,
                self.output.pipe(Stream::Stderr).map(AsFd::as_fd),
                PollFlags::POLLIN,
            ),
            (Source::Cancel, cancel.map(Cancel::as_fd), PollFlags::POLLIN),
        ];
        let (open, mut fds): (Vec<Source>, Vec<PollFd>) = sources
            .into_iter()
            .filter_map(|(source, fd, flags)| Some((source, PollFd::new(fd?, flags))))
            .unzip();
        match poll(&mut fds, self.patience()) {
            Err(Errno::EINTR) => return Ok(Ready::default()),
            other => other?,
        };
        Ok(open
            .into_iter()
            .zip(&fds)
            .fold(Ready::default(), |mut ready, (source, fd)| {
                let events = fd.revents().unwrap_or(PollFlags::POLLERR);
                let readable = !(events - PollFlags::POLLOUT).is_empty();
                match source {
                    Source::Monitor => ready.monitor = readable,
                    Source::Data => {
                        ready.data_in = readable;
                        ready.data_out = events.contains(PollFlags::POLLOUT);
                    }
                    Source::Stdout => ready.stdout = readable,
                    Source::Stderr => ready.stderr = readable,
                    Source::Cancel => ready.cancel = readable,
                }
                ready
            }))
    }

    /// How long nothing needs to be done.
    fn patience(&self) -> PollTimeout {
        let mut until = self.deadline;
        if self.stop.is_none() && self.exit.is_none() {
            until = until.min(self.watch.next());
            until = self
                .hung_up
                .map_or(until, |since| until.min(since + LAST_MOMENTS));
        }
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up, so that it is not waited for zero milliseconds again and again.
        PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX)
    }
}

#[derive(Clone, Copy)]
enum Source {
    Monitor,
    Data,
    Stdout,
    Stderr,
    Cancel,
}

/// What poll(2) found.
#[derive(Clone, Copy, Default)]
#[allow(clippy::struct_excessive_bools)] // one for each event, as the kernel tells them
pub(super) struct Ready {
    pub(super) monitor: bool,
    pub(super) data_in: bool,
    pub(super) data_out: bool,
    pub(super) stdout: bool,
    pub(super) stderr: bool,
    pub(super) cancel: bool,
}
