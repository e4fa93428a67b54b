//! Times and what is said of them: quantiles by nearest rank, with the interval that they stand for.

use std::time::Duration;

/// Times of one thing, in the order in which they were taken.
#[derive(Clone, Debug, Default)]
pub struct Samples(Vec<Duration>);

impl Samples {
    pub fn push(&mut self, time: Duration) {
        self.0.push(time);
    }

    pub fn summary(&self) -> Option<Summary> {
        if self.0.is_empty() {
            return None;
        }
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        Some(Summary { sorted })
    }
}

/// Times in ascending order; at least one.
#[derive(Clone, Debug)]
pub struct Summary {
    sorted: Vec<Duration>,
}

/// A quantile with its 95 % confidence interval.
#[derive(Clone, Copy, Debug)]
pub struct Estimate {
    pub low: Duration,
    pub value: Duration,
    pub high: Duration,
}

impl Summary {
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    pub fn quantile(&self, q: f64) -> Duration {
        self.at_rank(q * self.count_f64())
    }

    pub fn median(&self) -> Duration {
        self.quantile(0.5)
    }

    /// The interval is that of the order statistics around the quantile (binomial, by its normal
    /// approximation): it assumes nothing of how the times are distributed.
    pub fn estimate(&self, q: f64) -> Estimate {
        let rank = q * self.count_f64();
        let margin = 1.96 * (rank * (1.0 - q)).sqrt();
        Estimate {
            low: self.at_rank(rank - margin),
            value: self.at_rank(rank),
            high: self.at_rank(rank + margin),
        }
    }

    /// The middle half's width, as a share of the median: how noisy the machine was.
    pub fn spread(&self) -> f64 {
        let middle_half = self.quantile(0.75).saturating_sub(self.quantile(0.25));
        middle_half.as_secs_f64() / self.median().as_secs_f64()
    }

    #[allow(clippy::cast_precision_loss)] // a count of samples
    fn count_f64(&self) -> f64 {
        self.count() as f64
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped before
    fn at_rank(&self, rank: f64) -> Duration {
        let rank = rank.ceil().clamp(1.0, self.count_f64());
        self.sorted[rank as usize - 1]
    }
}
