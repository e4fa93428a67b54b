//! How far a program has come, and how long each step may take.

use std::time::{Duration, Instant};

/// How long the sandbox may take to start a program, or to end one that is killed. It takes milliseconds, but on a
/// host with hundreds of busy processes a turn of the processor alone takes seconds.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The least of that time: a program's own time says nothing of its start.
const LEAST: Duration = Duration::from_secs(5);

#[derive(Clone, Copy)]
pub enum Stage {
    /// It is to be started. Its caller waits for that until then.
    Asked(Instant),
    /// It runs, until then if there is a limit.
    Running(Option<Instant>),
    /// It was killed, and must end until then.
    Killed(Instant),
}

impl Stage {
    pub fn until(self) -> Option<Instant> {
        match self {
            Self::Asked(until) | Self::Killed(until) => Some(until),
            Self::Running(until) => until,
        }
    }
}

/// How long the caller of a program with this time waits for its start.
pub fn patience(timeout: Option<Duration>) -> Duration {
    timeout.map_or(PATIENCE, |timeout| timeout.clamp(LEAST, PATIENCE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_with_a_time_of_its_own_waits_no_longer_for_its_start() {
        let seconds = Duration::from_secs;
        assert_eq!(patience(None), PATIENCE);
        assert_eq!(patience(Some(seconds(7))), seconds(7));
        assert_eq!(patience(Some(seconds(3600))), PATIENCE);
        // It is killed right after its start.
        assert_eq!(patience(Some(Duration::ZERO)), LEAST);
    }
}
