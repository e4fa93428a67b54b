//! The stages of a program, and how long each may take.

use std::time::{Duration, Instant};

/// How long the sandbox may take to start a program, or to end a killed one. Either takes milliseconds, but on a host
/// with hundreds of busy processes it can take seconds until a process is scheduled.
pub const STEP_TIMEOUT: Duration = Duration::from_secs(30);

/// The minimum time to wait for a start, because a program's own timeout does not include its start.
const LEAST: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
pub enum Stage {
    /// Being started. Its caller waits until this deadline.
    Starting(Instant),
    /// Running, until this deadline if there is a timeout.
    Running(Option<Instant>),
    /// Killed. It must end by this deadline.
    Killed(Instant),
}

impl Stage {
    pub fn until(self) -> Option<Instant> {
        match self {
            Self::Starting(until) | Self::Killed(until) => Some(until),
            Self::Running(until) => until,
        }
    }
}

/// Returns how long the caller of a program with this timeout waits for its start.
pub fn start_timeout(timeout: Option<Duration>) -> Duration {
    timeout.map_or(STEP_TIMEOUT, |timeout| timeout.clamp(LEAST, STEP_TIMEOUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_timeout_is_bounded_by_the_programs_timeout() {
        let seconds = Duration::from_secs;
        assert_eq!(start_timeout(None), STEP_TIMEOUT);
        assert_eq!(start_timeout(Some(seconds(7))), seconds(7));
        assert_eq!(start_timeout(Some(seconds(3600))), STEP_TIMEOUT);
        // Killed right after its start.
        assert_eq!(start_timeout(Some(Duration::ZERO)), LEAST);
    }
}
