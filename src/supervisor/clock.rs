//! The clock of guests: it stands while the command is stopped, so that no limit on time runs meanwhile.
//!
//! SIGSTOP stops a process without a word, and its guests go on. A command therefore has a pulse: the clock never
//! gets far ahead of the last beat, and the first beat after SIGCONT leaves out the time without one. A pulse that is
//! only late, on a busy machine, leaves out nothing.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use crate::waiters::lock;

#[derive(Debug)]
struct Clock {
    /// Since when the clock stands.
    stands_since: Option<Instant>,
    /// How long it has stood before.
    stood: Duration,
    /// The last beat, if there is a pulse.
    beat: Option<Instant>,
}

/// How far the clock goes on without a beat. A stop that is not seen to begin counts for so long.
const LATEST: Duration = Duration::from_secs(1);

impl Clock {
    /// The time without a guest's limits.
    fn now(&self) -> Instant {
        let now = Instant::now();
        self.beat.map_or(now, |beat| now.min(beat + LATEST))
    }
}

static CLOCK: Mutex<Clock> = Mutex::new(Clock {
    stands_since: None,
    stood: Duration::ZERO,
    beat: None,
});

/// So many seconds. The far future is a time too. `None` for what is no time, such as NaN.
pub fn time_of(seconds: f64) -> Option<Duration> {
    match Duration::try_from_secs_f64(seconds) {
        Err(_) => (seconds > 0.0).then_some(Duration::MAX),
        time => time.ok(),
    }
}

/// The time of guests. Only comparable with other times of guests.
pub fn now() -> Instant {
    let clock = lock(&CLOCK);
    let now = clock.stands_since.unwrap_or_else(|| clock.now());
    // The clock has not stood for longer than the process lives.
    now.checked_sub(clock.stood).unwrap_or(now)
}

/// The processor time that the calling thread has used.
pub fn thread_time() -> Duration {
    // Every kernel has this clock (clock_gettime(2)).
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Into::into)
}

/// Why there is a beat.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Beat {
    /// It was time for one.
    Due,
    /// The process was continued after a stop.
    Continued,
}

/// The process runs: a part of its pulse, which is to come several times within a second from now on.
pub fn beat(why: Beat) {
    let mut clock = lock(&CLOCK);
    let shown = clock.now();
    let now = Instant::now();
    if why == Beat::Continued && clock.stands_since.is_none() {
        clock.stood += now - shown;
    }
    clock.beat = Some(now);
}

/// Stops the clock until the value is dropped.
pub(super) struct StoppedClock {
    /// Whether the time counts all the same.
    is_void: bool,
}

impl StoppedClock {
    /// Stops the clock now.
    pub fn begin() -> Self {
        let mut clock = lock(&CLOCK);
        clock.stands_since = Some(clock.now());
        Self { is_void: false }
    }

    /// Resumes the clock as if it had never stopped.
    pub fn cancel(mut self) {
        self.is_void = true;
    }
}

impl Drop for StoppedClock {
    fn drop(&mut self) {
        let mut clock = lock(&CLOCK);
        let since = clock.stands_since.take();
        if let Some(since) = since.filter(|_| !self.is_void) {
            clock.stood += since.elapsed();
        }
        // There was no pulse meanwhile.
        clock.beat = clock.beat.map(|_| Instant::now());
    }
}
