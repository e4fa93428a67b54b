//! What a run waits for: descriptors, the clock, and whichever comes first.

use std::os::fd::AsFd;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::PollFlags;

use super::{Link, Running};
use crate::supervisor::drain::Stream;
use crate::supervisor::run::Cancel;
use crate::supervisor::wait::{is_readable, wait};

impl Running<'_> {
    /// Waits until there is something to do, `due` at the latest.
    pub(super) fn wait(
        &self,
        cancel: Option<&Cancel>,
        due: Option<Instant>,
    ) -> Result<Ready, Errno> {
        let outgoing = if self.sent < self.outgoing.len() {
            PollFlags::POLLIN | PollFlags::POLLOUT
        } else {
            PollFlags::POLLIN
        };
        // A run that is ending is not cancelled again: the handle stays readable.
        let cancel = cancel.filter(|_| self.stop.is_none() && self.exit.is_none());
        let data = (self.data == Link::Open).then_some(&self.worker.data);
        let pipe = |stream| {
            let pipe = self.output.pipe(stream)?;
            Some((pipe.as_fd(), PollFlags::POLLIN))
        };
        let [monitor, data, stdout, stderr, cancel] = wait(
            [
                Some((self.worker.monitor.as_fd(), PollFlags::POLLIN)),
                data.map(|data| (data.as_fd(), outgoing)),
                pipe(Stream::Stdout),
                pipe(Stream::Stderr),
                cancel.map(|cancel| (cancel.as_fd(), PollFlags::POLLIN)),
            ],
            due.into_iter().chain([self.next_event()]).min(),
        )?;
        Ok(Ready {
            monitor: is_readable(monitor),
            data_in: is_readable(data),
            data_out: data.contains(PollFlags::POLLOUT),
            stdout: is_readable(stdout),
            stderr: is_readable(stderr),
            cancel: is_readable(cancel),
        })
    }

    /// Until when nothing needs to be done.
    fn next_event(&self) -> Instant {
        let mut until = self.deadline;
        if self.stop.is_none() && self.exit.is_none() {
            until = until.min(self.watch.next());
            until = self
                .hung_up
                .map_or(until, |hang_up| until.min(hang_up.next()));
        }
        until
    }
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
