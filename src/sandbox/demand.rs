//! Computes how many workers should be ready from the recent request rate. Pure.

use std::time::{Duration, Instant};

/// One worker is kept ready for this long after the last request: a session a minute is a usual
/// rate.
const REMEMBERED: Duration = Duration::from_secs(300);

/// The weight of the latest interval against earlier ones: one part in this many.
const WEIGHT: u32 = 4;

/// The recent requests and their rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    last: Option<Instant>,
    /// The recent average interval between two requests.
    interval: Option<Duration>,
}

impl Demand {
    /// Records a request.
    pub fn note(&mut self, now: Instant) {
        if let Some(last) = self.last {
            let latest = now.saturating_duration_since(last);
            self.interval = Some(match self.interval {
                // A pause does not indicate the rate before and after it.
                _ if latest > REMEMBERED => latest,
                Some(interval) => (interval * (WEIGHT - 1) + latest) / WEIGHT,
                None => latest,
            });
        }
        self.last = Some(now);
    }

    /// How many workers should be ready, at most `most`: as many as are requested during `birth`,
    /// the time that making one takes, and one more.
    pub fn ready(&self, now: Instant, birth: Duration, most: usize) -> usize {
        let Some(last) = self.last else { return 0 };
        let since = now.saturating_duration_since(last);
        if since > REMEMBERED {
            return 0;
        }
        // The rate decays while no request comes.
        let interval = self.interval.unwrap_or(REMEMBERED).max(since);
        let interval = interval.max(Duration::from_micros(1)).as_nanos();
        let meanwhile = birth.as_nanos() / interval;
        usize::try_from(meanwhile).map_or(most, |meanwhile| (meanwhile + 1).min(most))
    }

    /// When fewer workers should be ready, if no request comes until then.
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
