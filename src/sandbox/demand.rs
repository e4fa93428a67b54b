//! Computes from the recent request rate how many workers should be ready. Pure.

use std::time::{Duration, Instant};

/// How long after the last request one worker is kept ready: a session a minute is a usual rate.
const REMEMBERED: Duration = Duration::from_secs(300);

/// The weight of the latest interval in the moving average: one part in this many.
const WEIGHT: u32 = 4;

/// The recent request rate.
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
                // The rate before a long pause says nothing about the rate after it.
                _ if latest > REMEMBERED => latest,
                Some(interval) => (interval * (WEIGHT - 1) + latest) / WEIGHT,
                None => latest,
            });
        }
        self.last = Some(now);
    }

    /// Returns how many workers should be ready, at most `most`: as many as arrive during `birth`, the time to make one
    /// worker, plus one.
    pub fn ready(&self, now: Instant, birth: Duration, most: usize) -> usize {
        let Some(last) = self.last else { return 0 };
        let since = now.saturating_duration_since(last);
        if since > REMEMBERED {
            return 0;
        }
        // The rate decays while no request arrives.
        let interval = self.interval.unwrap_or(REMEMBERED).max(since);
        let interval = interval.max(Duration::from_micros(1)).as_nanos();
        let meanwhile = birth.as_nanos() / interval;
        usize::try_from(meanwhile).map_or(most, |meanwhile| (meanwhile + 1).min(most))
    }

    /// Returns when fewer workers should be ready, if no request arrives until then.
    pub fn forgotten(&self) -> Option<Instant> {
        Some(self.last? + REMEMBERED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BIRTH: Duration = Duration::from_millis(2);

    fn requests_every(interval: Duration) -> (Demand, Instant) {
        let (mut demand, mut now) = (Demand::default(), Instant::now());
        for _ in 0..100 {
            now += interval;
            demand.note(now);
        }
        (demand, now)
    }

    #[test]
    fn no_worker_is_ready_before_the_first_request() {
        assert_eq!(Demand::default().ready(Instant::now(), BIRTH, 8), 0);
    }

    #[test]
    fn one_worker_is_ready_for_rare_requests() {
        let (demand, now) = requests_every(Duration::from_secs(60));
        assert_eq!(demand.ready(now + Duration::from_secs(60), BIRTH, 8), 1);
        assert_eq!(demand.ready(now + REMEMBERED * 2, BIRTH, 8), 0);
    }

    #[test]
    fn ready_workers_match_the_request_rate() {
        let (demand, now) = requests_every(Duration::from_millis(1));
        assert_eq!(demand.ready(now, BIRTH, 8), 3);
        assert_eq!(demand.ready(now, BIRTH, 2), 2);
        assert_eq!(demand.ready(now, BIRTH, 0), 0);
    }

    #[test]
    fn demand_decays_when_requests_stop() {
        let (demand, now) = requests_every(Duration::from_micros(100));
        assert_eq!(demand.ready(now, BIRTH, 8), 8);
        assert_eq!(demand.ready(now + Duration::from_secs(1), BIRTH, 8), 1);
    }
}
