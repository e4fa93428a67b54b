//! The scale of a run: a fixed sample, or everything, alone or shared with other processes.

use std::env;

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Scale {
    /// A fixed sample of some tests.
    Ci,
    /// A fixed sample of all tests.
    Sample,
    /// Everything, or one of some equal shares of it.
    Full { share: usize, of: usize },
}

impl Scale {
    /// `SANDFORK_FAULTS=sample`, `full`, or `0/2` for the first of two shares.
    pub fn asked_for() -> Self {
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

    /// As many of these as are done, spread evenly: of a sample so many, of everything at most so many.
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

/// At most so many, evenly.
fn spread<T: Copy>(all: &[T], most: usize) -> Vec<T> {
    let count = all.len().min(most);
    // The middle of each of so many stretches: not always the first, which would be of one kind.
    let middle = |nth: usize| all[(2 * nth + 1) * all.len() / (2 * count)];
    (0..count).map(middle).collect()
}
