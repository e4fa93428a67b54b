//! The clock of guests. It is stopped while the command is stopped, so that no time limit runs meanwhile.
//!
//! SIGSTOP stops the process without notice, and its guests keep running. A command therefore has a pulse: the clock
//! never gets more than a second ahead of the last beat, and the first beat after SIGCONT leaves out the time without
//! beats. On a busy machine a pulse may merely be late: no time is left out then.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::waiters::lock;

#[derive(Debug)]
struct Clock {
    /// When the clock was stopped, if it is.
    stopped_since: Option<Instant>,
    /// The total time for which the clock was stopped before.
    stopped_for: Duration,
    /// The last beat of the pulse, if there is a pulse.
    beat: Option<Instant>,
}

/// How far the clock gets ahead of the last beat. A SIGSTOP counts as guest time for this long.
const MAX_LEAD: Duration = Duration::from_secs(1);

impl Clock {
    /// Returns the current time, held back if the last beat is too long ago.
    fn now(&self) -> Instant {
        let now = Instant::now();
        self.beat.map_or(now, |beat| now.min(beat + MAX_LEAD))
    }
}

static CLOCK: Mutex<Clock> = Mutex::new(Clock {
    stopped_since: None,
    stopped_for: Duration::ZERO,
    beat: None,
});

/// Converts seconds to a duration, the longest possible one for values that are too large. `None` for negative values
/// and NaN.
pub fn time_of(seconds: f64) -> Option<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        Err(_) => (seconds > 0.0).then_some(Duration::MAX),
        time => time.ok(),
    }
}

/// Returns the time of guests, which is comparable only with other times of guests.
pub fn now() -> Instant {
    let clock = lock(&CLOCK);
    let now = clock.stopped_since.unwrap_or_else(|| clock.now());
    // Never fails: the clock was not stopped for longer than the process has lived.
    now.checked_sub(clock.stopped_for).unwrap_or(now)
}

/// Returns the CPU time that the calling thread has used.
pub fn thread_time() -> Duration {
    // Every kernel has this clock (clock_gettime(2)).
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Into::into)
}

/// The cause of a beat.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Beat {
    /// The regular interval has passed.
    Due,
    /// The process was continued after a stop signal.
    Continued,
}

/// Records that the process is running. From the first beat on, the caller must beat several times a second.
pub fn beat(why: Beat) {
    let mut clock = lock(&CLOCK);
    let shown = clock.now();
    let now = Instant::now();
    if why == Beat::Continued && clock.stopped_since.is_none() {
        clock.stopped_for += now - shown;
    }
    clock.beat = Some(now);
}

/// Stops the clock until this value is dropped.
pub(super) struct StoppedClock {
    /// Whether the time of the stop counts after all.
    is_cancelled: bool,
}

impl StoppedClock {
    /// Stops the clock now.
    pub fn begin() -> Self {
        let mut clock = lock(&CLOCK);
        clock.stopped_since = Some(clock.now());
        Self {
            is_cancelled: false,
        }
    }

    /// Resumes the clock as if it had never stopped.
    pub fn cancel(mut self) {
        self.is_cancelled = true;
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        let mut clock = lock(&CLOCK);
        let since = clock.stopped_since.take();
        if let Some(since) = since.filter(|_| !self.is_cancelled) {
            clock.stopped_for += since.elapsed();
        }
        // There was no pulse meanwhile.
        clock.beat = clock.beat.map(|_| Instant::now());
    }
}
