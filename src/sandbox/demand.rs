//! How many workers should stand ready: told by how fast they were wanted lately. Pure.

use std::time::{Duration, Instant};

/// After the last one was wanted, one is kept ready for this long: a session a minute is a usual pace.
const REMEMBERED: Duration = Duration::from_secs(300);

/// How much the latest interval counts against those before it: one part in this many.
const WEIGHT: u32 = 4;

/// How many are wanted, and how fast.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    last: Option<Instant>,
    /// Between two, lately.
    interval: Option<Duration>,
}

impl Demand {
    /// One is wanted.
    pub fn note(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let latest = now.saturating_duration_since(last);
            self.interval = Some(match self.interval {
                // A pause tells nothing about the pace before and after it.
                _ if latest > REMEMBERED => latest,
                Some(interval) => (interval * (WEIGHT - 1) + latest) / WEIGHT,
                None => latest,
            });
        }
        self.last = Some(now);
    }

    /// How many should stand ready, at most `most`: as many as are wanted while one is made, which
    /// takes `birth`, and one more.
    pub fn ready(&self, now: Instant, birth: Duration, most: usize) -> usize {
        let Some(last) = self.last else { return 0 };
        let since = now.saturating_duration_since(last);
        if since > REMEMBERED {
            return 0;
        }
        // A pace that is over slows down by itself.
        let interval = self.interval.unwrap_or(REMEMBERED).max(since);
        let interval = interval.max(Duration::from_micros(1)).as_nanos();
        let meanwhile = birth.as_nanos() / interval;
        usize::try_from(meanwhile).map_or(most, |meanwhile| (meanwhile + 1).min(most))
    }

    /// When fewer should, if nobody wants one until then.
    pub fn forgotten(&self) -> Option<Instant> {
        Some(self.last? + REMEMBERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIRTH: Duration = Duration::from_millis(2);

    fn wanted_every(interval: Duration) -> (Demand, Instant) {
        let (mut demand, mut now) = (Demand::default(), Instant::now());
        for _ in 0..100 {
            now += interval;
            demand.note(now);
        }
        (demand, now)
    }

    #[test]
    fn none_stands_ready_before_one_was_wanted() {
        assert_eq!(Demand::default().ready(Instant::now(), BIRTH, 8), 0);
    }

    #[test]
    fn one_stands_ready_for_those_who_come_seldom() {
        let (demand, now) = wanted_every(Duration::from_secs(60));
        assert_eq!(demand.ready(now + Duration::from_secs(60), BIRTH, 8), 1);
        assert_eq!(demand.ready(now + REMEMBERED * 2, BIRTH, 8), 0);
    }

    #[test]
    fn as_many_stand_ready_as_are_wanted_while_one_is_made() {
        let (demand, now) = wanted_every(Duration::from_millis(1));
        assert_eq!(demand.ready(now, BIRTH, 8), 3);
        assert_eq!(demand.ready(now, BIRTH, 2), 2);
        assert_eq!(demand.ready(now, BIRTH, 0), 0);
    }

    #[test]
    fn a_pace_that_is_over_is_forgotten_by_and_by() {
        let (demand, now) = wanted_every(Duration::from_micros(100));
        assert_eq!(demand.ready(now, BIRTH, 8), 8);
        assert_eq!(demand.ready(now + Duration::from_secs(1), BIRTH, 8), 1);
    }
}
