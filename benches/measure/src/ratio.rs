//! Ratios between two measured things, compared with their targets.

use std::time::Duration;

use crate::samples::{Interval, Summary, index, ranks};

/// The quantile that is compared.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Quantile {
    /// The median.
    P50,
    /// The 99th percentile.
    P99,
}

impl Quantile {
    /// Returns the share of times that do not exceed the quantile.
    pub const fn share(self) -> f64 {
        match self {
            Self::P50 => 0.50,
            Self::P99 => 0.99,
        }
    }

    /// Returns `p50` or `p99`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
        }
    }
}

/// A ratio with its uncertainty in this run.
pub type Ratio = Interval<f64>;

impl Ratio {
    /// Returns a ratio of counts, without uncertainty.
    pub const fn exact(value: f64) -> Self {
        Self {
            low: value,
            value,
            high: value,
        }
    }

    /// Returns the ratio of a quantile to the base's median. The interval combines those of both, widened by the
    /// spread of the base: how far apart two processes of the same kind were on this machine, at this time.
    pub fn of(subject: &Summary, quantile: Quantile, base: &Summary) -> Self {
        let (above, below) = (subject.estimate(quantile.share()), base.estimate(0.5));
        let noise = 1.0 + base.spread();
        Self {
            low: quotient(above.low, below.high) / noise,
            value: quotient(above.value, below.value),
            high: quotient(above.high, below.low) * noise,
        }
    }

    /// Returns the ratio of a quantile to an absolute time, with the quantile's interval.
    pub fn of_time(subject: &Summary, quantile: Quantile, base: Duration) -> Self {
        let above = subject.estimate(quantile.share());
        above.map(|time| quotient(time, base))
    }

    /// Returns the median of the ratios of times that were taken one right after the other, if any: other load on
    /// the machine affected both times of a pair. The interval comes from the order statistics of the ratios.
    pub fn of_pairs(pairs: &[(Duration, Duration)]) -> Option<Self> {
        let ratios = pairs.iter().map(|(above, below)| quotient(*above, *below));
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_unstable_by(f64::total_cmp);
        let at = |rank| ratios[index(rank, ratios.len())];
        (!ratios.is_empty()).then(|| ranks(ratios.len(), 0.5).map(at))
    }

    /// Returns whether the ratio is at most `at_most`, as far as this run can tell.
    pub fn verdict(self, at_most: f64) -> Verdict {
        if self.high <= at_most {
            Verdict::Met
        } else if self.low > at_most {
            Verdict::NotMet
        } else {
            Verdict::Unclear
        }
    }
}

fn quotient(above: Duration, below: Duration) -> f64 {
    above.as_secs_f64() / below.as_secs_f64()
}

/// The verdict of this run on a target.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    /// The whole interval is within the target.
    Met,
    /// The whole interval is beyond the target.
    NotMet,
    /// The target lies within the interval.
    Unclear,
    /// The machine had too much other load.
    TooNoisy,
}

impl Verdict {
    /// Returns the verdict's name in the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::Unclear => "too close to tell",
            Self::TooNoisy => "too noisy to tell",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Samples;

    const MS: Duration = Duration::from_millis(1);

    fn always(time: Duration) -> Summary {
        let times = std::iter::repeat_n(time, 100);
        times.collect::<Samples>().summary().expect("not empty")
    }

    fn near(left: f64, right: f64) {
        assert!((left - right).abs() < 1e-9, "{left} is not {right}");
    }

    #[test]
    fn quiet_machine_gives_exact_ratios() {
        let ratio = Ratio::of(&always(MS), Quantile::P50, &always(10 * MS));
        assert_eq!(ratio, Ratio::exact(0.1));
        assert_eq!(ratio.verdict(0.1), Verdict::Met);
        assert_eq!(ratio.verdict(0.09), Verdict::NotMet);
    }

    #[test]
    fn a_noisy_base_widens_the_interval() {
        let noisy = (0..100).map(|i| if i % 2 == 0 { 8 * MS } else { 12 * MS });
        let noisy = noisy.collect::<Samples>().summary().expect("not empty");
        let ratio = Ratio::of(&always(MS), Quantile::P50, &noisy);
        // The middle half spans from 8 to 12, which is half of the median of 8.
        near(ratio.value, 1.0 / 8.0);
        near(ratio.low, 1.0 / 12.0 / 1.5);
        near(ratio.high, 1.0 / 8.0 * 1.5);
        assert_eq!(ratio.verdict(0.13), Verdict::Unclear);
    }

    #[test]
    fn absolute_target_has_no_noise() {
        let ratio = Ratio::of_time(&always(3 * MS), Quantile::P99, 2 * MS);
        assert_eq!(ratio, Ratio::exact(1.5));
    }

    #[test]
    fn pairs_cancel_common_noise() {
        // The machine gets ten times slower from pair to pair; inside is always 2 % slower.
        let pairs: Vec<_> = (0..5)
            .map(|i| 10_u32.pow(i) * 100 * MS)
            .map(|time| (time + time / 50, time))
            .collect();
        let ratio = Ratio::of_pairs(&pairs).expect("there are pairs");
        near(ratio.value, 1.02);
        near(ratio.high, 1.02);
        assert_eq!(ratio.verdict(1.01), Verdict::NotMet);
        assert_eq!(Ratio::of_pairs(&[]), None);
    }
}
