//! Enforces the time limits of cells and sessions, and the limits that need polling.

use std::time::{Duration, Instant};

use super::Purpose;
use super::cell::{CellUnderWay, Interrupted};
use super::life::{WorkerLife, between_cells};
use super::worker_io::WorkerIo;
use crate::outcome::{LimitName, Mechanism};
use crate::supervisor::ending::Stop;

/// How long an interrupted cell may take to end before the worker is killed.
const GRACE: Duration = Duration::from_secs(1);

/// The longest time that the kernel takes from closing a process's descriptors to reporting its exit, on an otherwise
/// idle host.
pub(super) const LAST_MOMENTS: Duration = Duration::from_millis(250);

/// The longest wall limit of a cell, so that an `Instant` can represent the deadline.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 3600);

/// The reasons for which a session ends by its own limits, as part of a sentence.
pub const WAITED: &str = "it waited for longer than `session.idle`";
pub const OLD: &str = "it was older than `session.age`";

/// The wall clock of one cell. It pauses while tool calls wait for the host, up to a total budget, so that a guest
/// cannot postpone its deadline without end by calling tools.
#[derive(Debug)]
pub struct WallClock {
    /// The cell's deadline, if the clock does not pause again.
    deadline: Instant,
    /// How much longer the clock may pause, in total.
    may_stand: Duration,
    /// When the clock was paused, if it is.
    stands_since: Option<Instant>,
    /// When the session reaches its age limit, which a paused clock does not postpone.
    end_of_life: Option<Instant>,
}

impl WallClock {
    /// Starts a clock at `started` with a limit of `wall`, which may pause for at most `may_stand` in total.
    pub fn new(
        started: Instant,
        wall: Duration,
        may_stand: Duration,
        end_of_life: Option<Instant>,
    ) -> Self {
        Self {
            deadline: started + wall.min(LONGEST),
            may_stand: may_stand.min(LONGEST),
            stands_since: None,
            end_of_life,
        }
    }

    /// Pauses the clock, within the budget, because a tool call waits for the host.
    pub fn stand_still(&mut self, now: Instant) {
        self.stands_since.get_or_insert(now);
    }

    /// Resumes the clock, because no tool call waits any more.
    pub fn go_on(&mut self, now: Instant) {
        let Some(since) = self.stands_since.take() else {
            return;
        };
        let stood = now.saturating_duration_since(since).min(self.may_stand);
        self.may_stand -= stood;
        self.deadline += stood;
    }

    /// Returns the cell's deadline, if nothing changes.
    pub fn end(&self) -> Instant {
        let still_to_stand = self.stands_since.map_or(Duration::ZERO, |_| self.may_stand);
        let end = self.deadline + still_to_stand;
        self.end_of_life.map_or(end, |of_life| end.min(of_life))
    }
}

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// Returns when to check the clocks again.
    pub fn next_event(&self) -> Option<Instant> {
        if self.reap_until.is_some() {
            return self.reap_until;
        }
        let ends = [
            self.cell.as_ref().map(CellUnderWay::next_event),
            self.hung_up,
            self.end_of_waiting(),
            self.end_of_life(),
            self.end_of_use(),
            Some(self.io.next_check()),
        ];
        ends.into_iter().flatten().min()
    }

    pub(super) fn end_of_waiting(&self) -> Option<Instant> {
        let is_idle = self.cell.is_none() && !self.io.runs_programs();
        let idle = self.session_terms().idle.filter(|_| is_idle)?;
        self.waiting_since.checked_add(idle)
    }

    pub(super) fn end_of_life(&self) -> Option<Instant> {
        self.born.checked_add(self.session_terms().age?)
    }

    /// Whether the session has reached its age limit.
    pub(super) fn is_too_old(&self, now: Instant) -> bool {
        self.end_of_life().is_some_and(|end| now >= end)
    }

    /// Handles each clock that is due.
    pub fn on_time(&mut self, now: Instant) {
        if self.reap_until.is_some() {
            return;
        }
        if let Some(stop) = self.io.check_limits(now) {
            self.interrupt(stop, now);
        }
        if self.cell.as_ref().is_some_and(|cell| cell.is_overdue(now)) {
            // The session's age limit is not a limit of its cell: raising `limits.wall` would not help.
            let stop = if self.is_too_old(now) {
                Stop::Cancelled
            } else {
                Stop::limit(LimitName::Wall, Mechanism::Deadline)
            };
            self.interrupt(stop, now);
        }
        if let Some(cell) = &mut self.cell
            && let Some(interrupted) = &mut cell.interrupted
        {
            if now >= interrupted.until {
                let stop = interrupted.stop.clone();
                self.end(stop);
            } else if interrupted.takes_reminder(now) {
                self.io.remind_of_interrupt();
            }
        }
        if self.hung_up.is_some_and(|look| now >= look) {
            // If the worker is exiting but gets no processor time, check again later.
            self.hung_up = Some(now + LAST_MOMENTS);
            if !self.io.is_ending() {
                let how = "it closed its link to the supervisor and went on";
                self.end(Stop::Violation(how.into()));
            }
        }
        if self.cell.is_none() {
            if self.end_of_waiting().is_some_and(|end| now >= end) {
                self.end_between_cells(WAITED);
            } else if self.is_too_old(now) {
                self.end_between_cells(OLD);
            } else if self.end_of_use().is_some_and(|end| now >= end) {
                self.begin_pause(now);
            }
        }
    }

    /// Interrupts the running cell, once, for the first reason. Python raises `KeyboardInterrupt`, and the session
    /// survives if the cell ends in time. Limits on memory and processes cannot wait that long: they kill the worker at
    /// once.
    pub(super) fn interrupt(&mut self, stop: Stop, now: Instant) {
        let is_patient = matches!(self.terms.purpose, Purpose::Session(_)) && stop.can_wait();
        let Some(cell) = self.cell.as_mut().filter(|_| is_patient) else {
            self.end(stop);
            return;
        };
        if cell.interrupted.is_some() || self.reap_until.is_some() {
            return;
        }
        cell.interrupted = Some(Interrupted::new(stop, now, now + GRACE));
        self.io.interrupt();
    }

    /// Kills the worker, once, for the first reason.
    pub(super) fn end(&mut self, stop: Stop) {
        if self.stop.is_none() && self.reap_until.is_none() {
            if self.cell.is_none() && self.why.is_none() {
                self.why = Some(between_cells(&stop));
            }
            self.stop = Some(stop);
            self.io.kill();
            self.expect_the_end();
        }
    }

    /// Kills a worker that has no running cell whose outcome could report the reason.
    pub(super) fn end_between_cells(&mut self, why: &str) {
        self.why = Some(why.to_owned());
        self.end(Stop::Cancelled);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn a_clock_stands_still_between_call_and_answer() {
        let start = Instant::now();
        let mut clock = WallClock::new(start, ms(1000), ms(5000), None);
        assert_eq!(clock.end(), start + ms(1000));
        clock.stand_still(start + ms(900));
        clock.go_on(start + ms(2900));
        assert_eq!(clock.end(), start + ms(3000));
        clock.stand_still(start + ms(2950));
        clock.go_on(start + ms(3950));
        assert_eq!(clock.end(), start + ms(4000));
    }

    #[test]
    fn a_clock_that_a_call_always_stops_ends_all_the_same() {
        let start = Instant::now();
        let mut clock = WallClock::new(start, ms(1000), ms(5000), None);
        clock.stand_still(start);
        let end = clock.end();
        assert_eq!(end, start + ms(6000));
        // Each call begins before the previous call is answered.
        for millisecond in (0..10_000).step_by(10) {
            clock.stand_still(start + ms(millisecond));
        }
        assert_eq!(clock.end(), end);
        clock.go_on(start + ms(10_000));
        assert_eq!(clock.end(), end);
        clock.stand_still(start + ms(10_001));
        assert_eq!(clock.end(), end);
    }

    #[test]
    fn many_short_stands_count_together() {
        let start = Instant::now();
        let mut clock = WallClock::new(start, ms(1000), ms(500), None);
        for call in 0..1000 {
            clock.stand_still(start + ms(2 * call));
            clock.go_on(start + ms(2 * call + 1));
        }
        assert_eq!(clock.end(), start + ms(1500));
    }

    #[test]
    fn a_clock_that_may_not_stand_still_goes_on() {
        let start = Instant::now();
        let mut clock = WallClock::new(start, ms(1000), Duration::ZERO, None);
        clock.stand_still(start);
        assert_eq!(clock.end(), start + ms(1000));
    }

    #[test]
    fn no_call_makes_a_session_live_longer() {
        let start = Instant::now();
        let end_of_life = start + ms(2000);
        let mut clock = WallClock::new(start, ms(1000), ms(60_000), Some(end_of_life));
        clock.stand_still(start);
        assert_eq!(clock.end(), end_of_life);
        clock.go_on(start + ms(30_000));
        assert_eq!(clock.end(), end_of_life);
    }

    #[test]
    fn the_longest_times_can_be_added() {
        let start = Instant::now();
        let mut clock = WallClock::new(start, Duration::MAX, Duration::MAX, None);
        clock.stand_still(start);
        assert!(clock.end() > start + LONGEST);
    }
}
