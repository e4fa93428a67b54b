//! Samples of times: quantiles by nearest rank, with confidence intervals.

use std::time::Duration;

use serde::{Serialize, Serializer};
use serde_json::json;

/// The number of standard deviations that contain 95 % of a normal distribution.
const WITHIN: f64 = 1.96;

/// Times of one subject, in order of measurement.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    /// Adds a time.
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// Returns all times, in order of measurement.
    pub fn times(&self) -> &[Duration] {
        &self.0
    }

    /// Returns the summary, if there are any times.
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

/// At least one time, sorted in ascending order.
#[derive(Clone, Debug)]
pub struct Summary {
    sorted: Vec<Duration>,
}

/// A value with the ends of its 95 % confidence interval.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct Interval<T> {
    /// Lower end of the interval.
    pub low: T,
    /// The value.
    pub value: T,
    /// Upper end of the interval.
    pub high: T,
}

impl<T> Interval<T> {
    /// Applies `of` to the value and both ends.
    pub fn map<U>(self, of: impl Fn(T) -> U) -> Interval<U> {
        let [low, value, high] = [self.low, self.value, self.high].map(of);
        Interval { low, value, high }
    }
}

impl Summary {
    /// Returns the number of times.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Returns the time that a share `q` of the times does not exceed.
    pub fn quantile(&self, q: f64) -> Duration {
        self.sorted[index(q * count_f64(self.count()), self.count())]
    }

    /// Returns the median.
    pub fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// Returns the quantile with the interval of the order statistics around it (binomial, by its normal
    /// approximation). This assumes nothing about the distribution of the times.
    pub fn estimate(&self, q: f64) -> Interval<Duration> {
        ranks(self.count(), q).map(|rank| self.sorted[index(rank, self.count())])
    }

    /// Returns the quantile, if there are enough times for its interval to end among them. With fewer, the
    /// largest times do not show how often they occur.
    pub fn tail(&self, q: f64) -> Option<Duration> {
        (ranks(self.count(), q).high <= count_f64(self.count())).then(|| self.quantile(q))
    }

    /// Returns the width of the middle half as a share of the median: how noisy the machine was.
    pub fn spread(&self) -> f64 {
        let middle_half = self.quantile(0.75).saturating_sub(self.quantile(0.25));
        middle_half.as_secs_f64() / self.median().as_secs_f64()
    }
}

impl Serialize for Summary {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let us = |q| microseconds(self.quantile(q));
        let tail = |q| self.tail(q).map(microseconds);
        json!({
            "n": self.count(), "min_us": us(0.0), "p25_us": us(0.25), "p50_us": us(0.5),
            "p75_us": us(0.75), "p99_us": tail(0.99), "p99_9_us": tail(0.999), "max_us": us(1.0),
        })
        .serialize(serializer)
    }
}

/// Converts to microseconds, rounded to a tenth, which is finer than the clocks measure.
pub(crate) fn microseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e7).round() / 10.0
}

/// Returns the ranks, among `count` sorted values, of a quantile and of the ends of its interval.
pub(crate) fn ranks(count: usize, q: f64) -> Interval<f64> {
    let rank = q * count_f64(count);
    let margin = WITHIN * (rank * (1.0 - q)).sqrt();
    Interval {
        low: rank - margin,
        value: rank,
        high: rank + margin,
    }
}

/// Returns the index of the value with this rank (from 1) among `count` values.
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

    /// Returns 1, 2, ... milliseconds, out of order.
    fn up_to(count: u64) -> Summary {
        let times = (1..=count).rev().map(Duration::from_millis);
        times.collect::<Samples>().summary().expect("not empty")
    }

    #[test]
    fn empty_samples_have_no_summary() {
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
    fn times_are_written_in_microseconds_and_unclear_tails_as_null() {
        let summary = serde_json::to_value(up_to(100)).expect("serialization succeeds");
        assert_eq!(
            (&summary["n"], &summary["p50_us"]),
            (&json!(100), &json!(50_000.0))
        );
        assert_eq!(
            (&summary["p99_us"], &summary["max_us"]),
            (&json!(null), &json!(100_000.0))
        );
        assert!((microseconds(Duration::from_nanos(1_234_567)) - 1_234.6).abs() < 1e-9);
    }

    #[test]
    fn spread_is_the_middle_half() {
        // From 25 to 75 milliseconds, around 50.
        assert!((up_to(100).spread() - 1.0).abs() < 1e-9);
        assert!(up_to(1).spread().abs() < 1e-9);
    }
}
