//! When a zygote is replaced.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::supervisor::Zygote;

/// How long a zygote serves. Its workers share its hash seed and its address layout, so none serves for long.
#[derive(Clone, Copy, Debug)]
pub struct Turnover {
    /// From here on its successor is made, while it serves.
    pub renewed_after: Term,
    /// From here on it gets no worker: runs wait for its successor.
    pub most: Term,
    /// How long after one attempt to make a successor has begun the next one may begin.
    pub pause: Duration,
}

/// A part of a zygote's life, which ends with either.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    /// How many workers it has forked.
    pub workers: u64,
    /// How long it has served.
    pub age: Duration,
}

/// SECURITY.md promises the bound. The quarter before it is time for heavy preloads, and for several attempts.
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

/// One zygote, and what it has served.
#[derive(Debug)]
pub struct Generation<Z = Arc<Zygote>> {
    pub zygote: Z,
    begun: Instant,
    workers: u64,
    /// When the last attempt to make its successor began.
    tried: Option<Instant>,
}

/// Whether the successor of a zygote is to be made.
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

    /// Counts one more worker. `None` if it may serve no other.
    pub fn serve(&mut self, turnover: &Turnover, now: Instant) -> Option<Renewal> {
        if self.has_served(turnover.most, now) {
            return None;
        }
        self.workers += 1;
        let since = |tried| now.saturating_duration_since(tried);
        let rests = self.tried.is_some_and(|it| since(it) < turnover.pause);
        if rests || !self.has_served(turnover.renewed_after, now) {
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
    fn a_successor_is_made_before_the_last_worker() {
        let begun = Instant::now();
        let mut generation = Generation::new((), begun);
        let served: Vec<_> = (0..6)
            .map(|_| generation.serve(&turnover(), begun))
            .collect();
        let (now, later) = (Some(Renewal::Now), Some(Renewal::Later));
        assert_eq!(served, [later, later, now, later, later, None]);
    }

    #[test]
    fn an_attempt_that_failed_is_followed_by_another_after_a_pause() {
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
    fn the_bound_is_what_security_md_promises() {
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
