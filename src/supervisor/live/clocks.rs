//! What a session is held to: the time of a cell, of the session, and what the watch sees.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::attend::Live;
use super::cell::{CellUnderWay, Interrupted};
use crate::supervisor::ending::Stop;
use crate::sys;

/// How long an interrupted cell may take to end before its worker is ended.
const GRACE: Duration = Duration::from_secs(1);

impl Live<'_> {
    /// When to look at the clocks again.
    pub(super) fn next_event(&self) -> Option<Instant> {
        if self.reap_until.is_some() {
            return self.reap_until;
        }
        let ends = [
            self.cell.as_ref().and_then(CellUnderWay::next_event),
            self.hung_up.map(|hang_up| hang_up.next()),
            self.end_of_waiting(),
            self.end_of_life(),
            Some(self.watch.next()),
        ];
        ends.into_iter().flatten().min()
    }

    fn end_of_waiting(&self) -> Option<Instant> {
        let idle = self.terms.idle.filter(|_| self.cell.is_none())?;
        self.waiting_since.checked_add(idle)
    }

    pub(super) fn end_of_life(&self) -> Option<Instant> {
        self.born.checked_add(self.terms.age?)
    }

    /// Does what is due.
    pub(super) fn check_clocks(&mut self, now: Instant) {
        if self.reap_until.is_some() {
            return;
        }
        if let Some(stop) = self.watch.look(now) {
            self.interrupt(stop);
        }
        if self.cell.as_ref().is_some_and(|cell| cell.is_overdue(now)) {
            self.interrupt(Stop::deadline());
        }
        if let Some(cell) = &self.cell
            && let Some(interrupted) = &cell.interrupted
            && now >= interrupted.until
        {
            self.end(interrupted.stop.clone());
        }
        let worker = self.worker;
        let hang_up = self.hung_up.as_mut();
        if hang_up.is_some_and(|hang_up| hang_up.is_violation(now, worker)) {
            let how = "it closed its link to the supervisor and went on";
            self.end(Stop::Violation(how.into()));
        }
        if self.cell.is_none() {
            if self.end_of_waiting().is_some_and(|end| now >= end) {
                self.end_between_cells("it waited for longer than `session.idle`");
            } else if self.end_of_life().is_some_and(|end| now >= end) {
                self.end_between_cells("it was older than `session.age`");
            }
        }
    }

    /// Interrupts the cell under way, once, for the first reason: Python raises `KeyboardInterrupt`, and
    /// the session lives on if the cell ends of it in time. What a limit on memory or processes is
    /// about cannot wait that long.
    pub(super) fn interrupt(&mut self, stop: Stop) {
        let Some(cell) = self.cell.as_mut().filter(|_| stop.can_wait()) else {
            if self.cell.is_none() && self.why.is_none() {
                self.why = Some(format!(
                    "what it left running between two cells {}",
                    stop.in_words()
                ));
            }
            self.end(stop);
            return;
        };
        if cell.interrupted.is_some() || self.reap_until.is_some() {
            return;
        }
        cell.interrupted = Some(Interrupted {
            stop,
            until: Instant::now() + GRACE,
        });
        _ = sys::pidfd::signal(self.worker.process.as_fd(), Signal::SIGINT);
    }

    /// Ends the worker, once, for the first reason.
    pub(super) fn end(&mut self, stop: Stop) {
        if self.stop.is_none() && self.reap_until.is_none() {
            self.stop = Some(stop);
            self.worker.kill();
            self.expect_the_end();
        }
    }

    /// Ends the worker where no cell is to tell why.
    pub(super) fn end_between_cells(&mut self, why: &str) {
        self.why = Some(why.to_owned());
        self.end(Stop::Cancelled);
    }
}
