//! Times and what is said of them: quantiles by nearest rank, with the interval that they stand for.

use std::time::Duration;

/// Of a normal distribution, 95 % lie within so many standard deviations.
const WITHIN: f64 = 1.96;

/// Times of one thing, in the order in which they were taken.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// All of them, in the order in which they were taken.
    pub fn times(&self) -> &[Duration] {
        &self.0
    }

    /// What can be said of them, if there are any.
    pub fn summary(&self) -> Option<Summary> {
        if self.0.is_empty() {
            return None;
        }
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        Some(Summary { sorted })
    }
}

impl FromIterator<Duration> for Samples {
    fn from_iter<I: IntoIterator<Item = Duration>>(times: I) -> Self {
        Self(times.into_iter().collect())
    }
}

/// Times in ascending order; at least one.
#[derive(Clone, Debug)]
pub struct Summary {
    sorted: Vec<Duration>,
}

/// A quantile with its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Estimate {
    /// Lower end of the interval.
    pub low: Duration,
    /// The quantile.
    pub value: Duration,
    /// Upper end of the interval.
    pub high: Duration,
}

impl Summary {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// The time that a share `q` of them does not exceed.
    pub fn quantile(&self, q: f64) -> Duration {
        self.sorted[index(q * count_f64(self.count()), self.count())]
    }

    /// Half of them take no longer.
    pub fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// The interval is that of the order statistics around the quantile (binomial, by its normal
    /// approximation): it assumes nothing of how the times are distributed.
    pub fn estimate(&self, q: f64) -> Estimate {
        let (low, value, high) = ranks(self.count(), q);
        let at = |rank| self.sorted[index(rank, self.count())];
        Estimate {
            low: at(low),
            value: at(value),
            high: at(high),
        }
    }

    /// The same quantile, if there are times enough for its interval to end among them. Without that,
    /// the largest times say what happened once, and nothing of how often.
    pub fn tail(&self, q: f64) -> Option<Duration> {
        let (_, _, high) = ranks(self.count(), q);
        (high <= count_f64(self.count())).then(|| self.quantile(q))
    }

    /// The middle half's width, as a share of the median: how noisy the machine was.
    pub fn spread(&self) -> f64 {
        let middle_half = self.quantile(0.75).saturating_sub(self.quantile(0.25));
        middle_half.as_secs_f64() / self.median().as_secs_f64()
    }
}

/// Of so many sorted values: the ranks of a quantile's interval, and of itself between them.
pub(crate) fn ranks(count: usize, q: f64) -> (f64, f64, f64) {
    let rank = q * count_f64(count);
    let margin = WITHIN * (rank * (1.0 - q)).sqrt();
    (rank - margin, rank, rank + margin)
}

/// Where the value of that rank, from 1, stands among so many.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped before
pub(crate) fn index(rank: f64, count: usize) -> usize {
    rank.ceil().clamp(1.0, count_f64(count)) as usize - 1
}

#[allow(clippy::cast_precision_loss)] // a count of samples
fn count_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1, 2, ... milliseconds, out of order.
    fn up_to(count: u64) -> Summary {
        let times = (1..=count).rev().map(Duration::from_millis);
        times.collect::<Samples>().summary().expect("not empty")
    }

    #[test]
    fn nothing_has_no_summary() {
        assert!(Samples::default().summary().is_none());
    }

    #[test]
    fn quantiles_are_times_that_were_seen() {
        let summary = up_to(100);
        assert_eq!(summary.quantile(0.0), Duration::from_millis(1));
        assert_eq!(summary.median(), Duration::from_millis(50));
        assert_eq!(summary.quantile(0.99), Duration::from_millis(99));
        assert_eq!(summary.quantile(1.0), Duration::from_millis(100));
        assert_eq!(up_to(1).median(), Duration::from_millis(1));
    }

    #[test]
    fn the_interval_of_a_median_has_its_twenty_neighbours() {
        let estimate = up_to(100).estimate(0.5);
        // 50 -+ 1.96 * sqrt(100 * 0.5 * 0.5) = 40.2 and 59.8, rounded up.
        assert_eq!(estimate.low, Duration::from_millis(41));
        assert_eq!(estimate.value, Duration::from_millis(50));
        assert_eq!(estimate.high, Duration::from_millis(60));
    }

    #[test]
    fn few_times_have_no_tail() {
        assert_eq!(up_to(380).tail(0.99), None);
        assert_eq!(up_to(381).tail(0.99), Some(Duration::from_millis(378)));
        assert_eq!(up_to(3837).tail(0.999), None);
        assert!(up_to(3838).tail(0.999).is_some());
    }

    #[test]
    fn spread_is_the_middle_half() {
        // From 25 to 75 milliseconds, around 50.
        assert!((up_to(100).spread() - 1.0).abs() < 1e-9);
        assert!(up_to(1).spread().abs() < 1e-9);
    }
}
