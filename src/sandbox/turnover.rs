//! Decides when a zygote is replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::supervisor::Zygote;

/// How long a zygote serves. Its workers share its hash seed and its address layout, so no zygote serves for long.
#[derive(Clone, Copy, Debug)]
pub struct Turnover {
    /// The point from which a successor is started, while the zygote still serves.
    pub renewed_after: Term,
    /// The point from which the zygote forks no more workers: runs wait for its successor.
    pub most: Term,
    /// The minimum time between the starts of two attempts to make a successor.
    pub pause: Duration,
}

/// A part of a zygote's life, which ends as soon as either bound is reached.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    /// The number of forked workers.
    pub workers: u64,
    /// The time since the zygote began to serve.
    pub age: Duration,
}

/// SECURITY.md promises the upper bound. The last quarter leaves time for heavy preloads and for several attempts.
impl Default for Turnover {
    fn default() -> Self {
        const HOUR: u64 = 3600;
        Self {
            renewed_after: Term {
                workers: 7_500,
                age: Duration::from_secs(HOUR / 4 * 3),
            },
            most: Term {
                workers: 10_000,
                age: Duration::from_secs(HOUR),
            },
            pause: Duration::from_secs(30),
        }
    }
}

/// One zygote, and how much it has served.
#[derive(Debug)]
pub struct Generation<Z = Arc<Zygote>> {
    pub zygote: Z,
    begun: Instant,
    workers: u64,
    /// When the last attempt to make a successor began.
    tried: Option<Instant>,
}

/// Whether to start a zygote's successor.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Renewal {
    Now,
    Later,
}

impl<Z> Generation<Z> {
    pub fn new(zygote: Z, now: Instant) -> Self {
        Self {
            zygote,
            begun: now,
            workers: 0,
            tried: None,
        }
    }

    /// Counts one more worker. Returns `None` if the zygote may fork no other.
    pub fn serve(&mut self, turnover: &Turnover, now: Instant) -> Option<Renewal> {
        if self.has_served(turnover.most, now) {
            return None;
        }
        self.workers += 1;
        let since = |tried| now.saturating_duration_since(tried);
        let is_pausing = self.tried.is_some_and(|it| since(it) < turnover.pause);
        if is_pausing || !self.has_served(turnover.renewed_after, now) {
            return Some(Renewal::Later);
        }
        self.tried = Some(now);
        Some(Renewal::Now)
    }

    fn has_served(&self, term: Term, now: Instant) -> bool {
        self.workers >= term.workers || now.saturating_duration_since(self.begun) >= term.age
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn turnover() -> Turnover {
        let term = |workers, seconds| Term {
            workers,
            age: SECOND * seconds,
        };
        Turnover {
            renewed_after: term(3, 100),
            most: term(5, 200),
            pause: SECOND * 10,
        }
    }

    #[test]
    fn successor_starts_before_the_last_worker() {
        let begun = Instant::now();
        let mut generation = Generation::new((), begun);
        let served: Vec<_> = (0..6)
            .map(|_| generation.serve(&turnover(), begun))
            .collect();
        let (now, later) = (Some(Renewal::Now), Some(Renewal::Later));
        assert_eq!(served, [later, later, now, later, later, None]);
    }

    #[test]
    fn failed_attempt_is_retried_after_a_pause() {
        let begun = Instant::now();
        let mut generation = Generation::new((), begun);
        let mut at = |seconds| generation.serve(&turnover(), begun + SECOND * seconds);
        assert_eq!(at(99), Some(Renewal::Later));
        assert_eq!(at(100), Some(Renewal::Now));
        assert_eq!(at(109), Some(Renewal::Later));
        assert_eq!(at(110), Some(Renewal::Now));
        assert_eq!(at(200), None);
    }

    #[test]
    fn upper_bound_matches_security_md() {
        let promised = "(10,000 workers or one hour)";
        assert!(include_str!("../../SECURITY.md").contains(promised));
        let Turnover {
            renewed_after,
            most,
            ..
        } = Turnover::default();
        assert_eq!((most.workers, most.age), (10_000, SECOND * 3600));
        assert!(renewed_after.workers < most.workers && renewed_after.age < most.age);
    }
}
