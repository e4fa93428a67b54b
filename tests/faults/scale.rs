//! The number of faults to inject: a fixed sample, or all, in one process or shared among several.

use std::env;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scale {
    /// A fixed sample of some tests.
    Ci,
    /// A fixed sample of all tests.
    Sample,
    /// Everything, or one of several equal shares of it.
    Full { share: usize, of: usize },
}

impl Scale {
    /// Parses `SANDFORK_FAULTS`: `sample`, `full`, or for instance `0/2` for the first of two shares.
    pub fn from_environment() -> Self {
        let asked = env::var("SANDFORK_FAULTS").unwrap_or_default();
        let share = asked
            .split_once('/')
            .and_then(|(share, of)| Some((share.parse().ok()?, of.parse().ok()?)));
        match share {
            Some((share, of)) => Self::Full { share, of },
            None if asked == "full" => Self::Full { share: 0, of: 1 },
            None if asked == "sample" => Self::Sample,
            None => Self::Ci,
        }
    }

    /// Selects evenly spread elements: `sample` of them for a sample, at most `most` otherwise.
    pub fn of<T: Copy>(self, all: &[T], sample: usize, most: usize) -> Vec<T> {
        match self {
            Self::Ci | Self::Sample => spread(all, sample),
            Self::Full { share, of } => {
                let all = spread(all, most);
                all.into_iter().skip(share).step_by(of).collect()
            }
        }
    }
}

/// Selects at most `most` elements, evenly spread.
fn spread<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let count = all.len().min(most);
    // The middle of each stretch rather than its first element, which would often be of the same kind.
    let middle = |nth: usize| all[(2 * nth + 1) * all.len() / (2 * count)];
    (0..count).map(middle).collect()
}
