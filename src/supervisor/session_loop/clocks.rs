//! Enforces the time limits of cells and sessions, and the limits that need polling.

use std::time::{Duration, Instant};

use super::Purpose;
use super::cell::{Interrupted, RunningCell};
use super::life::{WorkerLife, between_cells};
use super::worker_io::WorkerIo;
use crate::outcome::{LimitName, Mechanism};
use crate::supervisor::ending::Stop;

/// How long an interrupted cell may take to end before the worker is killed.
const GRACE: Duration = Duration::from_secs(1);

/// The longest time that the kernel takes from closing a process's descriptors to reporting its exit, on an otherwise
/// idle host.
pub(super) const EXIT_LAG: Duration = Duration::from_millis(250);

/// The longest wall limit of a cell, so that an `Instant` can represent the deadline.
const MAX_WALL: Duration = Duration::from_secs(366 * 24 * 3600);

/// The reasons for which a session ends by its own limits, as part of a sentence.
pub const IDLE_EXPIRED: &str = "it waited for longer than `session.idle`";
pub const AGE_EXPIRED: &str = "it was older than `session.age`";

/// The wall clock of one cell. It pauses while tool calls wait for the host, up to a total budget, so that a guest
/// cannot postpone its deadline without end by calling tools.
#[derive(Debug)]
pub struct WallClock {
    /// The cell's deadline, if the clock does not pause again.
    deadline: Instant,
    /// How much longer the clock may pause, in total.
    pause_budget: Duration,
    /// When the clock was paused, if it is.
    paused_since: Option<Instant>,
    /// When the session reaches its age limit, which a paused clock does not postpone.
    age_deadline: Option<Instant>,
}

impl WallClock {
    /// Starts a clock at `started` with a limit of `wall`, which may pause for at most `pause_budget` in total.
    pub fn new(
        started: Instant,
        wall: Duration,
        pause_budget: Duration,
        age_deadline: Option<Instant>,
    ) -> Self {
        Self {
            deadline: started + wall.min(MAX_WALL),
            pause_budget: pause_budget.min(MAX_WALL),
            paused_since: None,
            age_deadline,
        }
    }

    /// Pauses the clock, within the budget, because a tool call waits for the host.
    pub fn pause(&mut self, now: Instant) {
        self.paused_since.get_or_insert(now);
    }

    /// Resumes the clock, because no tool call waits any more.
    pub fn resume(&mut self, now: Instant) {
        let Some(since) = self.paused_since.take() else {
            return;
        };
        let paused_for = now.saturating_duration_since(since).min(self.pause_budget);
        self.pause_budget -= paused_for;
        self.deadline += paused_for;
    }

    /// Returns the cell's deadline, if nothing changes.
    pub fn end(&self) -> Instant {
        let remaining = self
            .paused_since
            .map_or(Duration::ZERO, |_| self.pause_budget);
        let end = self.deadline + remaining;
        self.age_deadline.map_or(end, |age| end.min(age))
    }
}

impl<W: WorkerIo> WorkerLife<'_, W> {
    /// Returns when to check the clocks again.
    pub fn next_event(&self) -> Option<Instant> {
        if self.reap_until.is_some() {
            return self.reap_until;
        }
        let ends = [
            self.cell.as_ref().map(RunningCell::next_event),
            self.hung_up,
            self.idle_deadline(),
            self.age_deadline(),
            self.pause_due(),
            Some(self.io.next_check()),
        ];
        ends.into_iter().flatten().min()
    }

    pub(super) fn idle_deadline(&self) -> Option<Instant> {
        let is_idle = self.cell.is_none() && !self.io.runs_programs();
        let idle = self.session_terms().idle.filter(|_| is_idle)?;
        self.waiting_since.checked_add(idle)
    }

    pub(super) fn age_deadline(&self) -> Option<Instant> {
        self.born.checked_add(self.session_terms().age?)
    }

    /// Whether the session has reached its age limit.
    pub(super) fn is_too_old(&self, now: Instant) -> bool {
        self.age_deadline().is_some_and(|end| now >= end)
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
            } else if interrupted.take_due_reminder(now) {
                self.io.remind_of_interrupt();
            }
        }
        if self.hung_up.is_some_and(|look| now >= look) {
            // If the worker is exiting but gets no CPU time, check again later.
            self.hung_up = Some(now + EXIT_LAG);
            if !self.io.is_ending() {
                let how = "it closed its link to the supervisor and kept running";
                self.end(Stop::Violation(how.into()));
            }
        }
        if self.cell.is_none() {
            if self.idle_deadline().is_some_and(|end| now >= end) {
                self.end_between_cells(IDLE_EXPIRED);
            } else if self.is_too_old(now) {
                self.end_between_cells(AGE_EXPIRED);
            } else if self.pause_due().is_some_and(|end| now >= end) {
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
            self.set_reap_deadline();
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
    fn clock_pauses_between_call_and_answer() {
        let start = Instant::now();
        let mut clock = WallClock::new(start, ms(1000), ms(5000), None);
        assert_eq!(clock.end(), start + ms(1000));
        clock.pause(start + ms(900));
        clock.resume(start + ms(2900));
        assert_eq!(clock.end(), start + ms(3000));
        clock.pause(start + ms(2950));
        clock.resume(start + ms(3950));
        assert_eq!(clock.end(), start + ms(4000));
    }

    #[test]
    fn overlapping_calls_cannot_exceed_the_pause_budget() {
        let start = Instant::now();
        let mut clock = WallClock::new(start, ms(1000), ms(5000), None);
        clock.pause(start);
        let end = clock.end();
        assert_eq!(end, start + ms(6000));
        // Each call begins before the previous call is answered.
        for millisecond in (0..10_000).step_by(10) {
            clock.pause(start + ms(millisecond));
        }
        assert_eq!(clock.end(), end);
        clock.resume(start + ms(10_000));
        assert_eq!(clock.end(), end);
        clock.pause(start + ms(10_001));
        assert_eq!(clock.end(), end);
    }

    #[test]
    fn short_pauses_add_up() {
        let start = Instant::now();
        let mut clock = WallClock::new(start, ms(1000), ms(500), None);
        for call in 0..1000 {
            clock.pause(start + ms(2 * call));
            clock.resume(start + ms(2 * call + 1));
        }
        assert_eq!(clock.end(), start + ms(1500));
    }

    #[test]
    fn clock_without_pause_budget_keeps_running() {
        let start = Instant::now();
        let mut clock = WallClock::new(start, ms(1000), Duration::ZERO, None);
        clock.pause(start);
        assert_eq!(clock.end(), start + ms(1000));
    }

    #[test]
    fn pause_does_not_extend_the_session_age() {
        let start = Instant::now();
        let age_deadline = start + ms(2000);
        let mut clock = WallClock::new(start, ms(1000), ms(60_000), Some(age_deadline));
        clock.pause(start);
        assert_eq!(clock.end(), age_deadline);
        clock.resume(start + ms(30_000));
        assert_eq!(clock.end(), age_deadline);
    }

    #[test]
    fn longest_durations_do_not_overflow() {
        let start = Instant::now();
        let mut clock = WallClock::new(start, Duration::MAX, Duration::MAX, None);
        clock.pause(start);
        assert!(clock.end() > start + MAX_WALL);
    }
}
