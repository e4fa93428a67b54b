//! Ratios between two measured things, and whether they reach what was aimed at.

use std::fmt;
use std::time::Duration;

use crate::samples::Summary;
use crate::subject::{Client, Preload, Subject};

/// One line of the table's aims: a quantile of the subject, as a multiple of the base.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    pub subject: Subject,
    pub quantile: Quantile,
    pub base: Base,
    pub at_most: f64,
    pub rank: Rank,
}

/// What a ratio is of.
#[derive(Clone, Copy, Debug)]
pub enum Base {
    /// The median of something measured in the same run.
    Median(Subject),
    /// A time that was aimed at as such.
    Time(Duration),
}

impl fmt::Display for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Median(subject) => subject.fmt(f),
            Self::Time(time) => write!(f, "{} us", time.as_micros()),
        }
    }
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Quantile {
    P50,
    P99,
}

impl Quantile {
    pub const fn share(self) -> f64 {
        match self {
            Self::P50 => 0.50,
            Self::P99 => 0.99,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::P50 => "p50",
            Self::P99 => "p99",
        }
    }
}

/// Which of the project's aims it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Rank {
    First,
    Final,
}

impl Rank {
    pub const fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Final => "final",
        }
    }
}

const PYTHON: Subject = Subject::Python(Preload::Nothing);
const PANDAS: Preload = Preload::NumpyAndPandas;

pub const AIMS: [Aim; 12] = [
    aim(
        Subject::Result(Preload::Nothing),
        Quantile::P50,
        PYTHON,
        0.20,
        Rank::First,
    ),
    aim(
        Subject::Result(Preload::Nothing),
        Quantile::P50,
        PYTHON,
        0.10,
        Rank::Final,
    ),
    aim(
        Subject::Result(Preload::Nothing),
        Quantile::P99,
        PYTHON,
        0.35,
        Rank::Final,
    ),
    aim(Subject::Ready, Quantile::P50, PYTHON, 0.03, Rank::Final),
    cycle(Preload::Nothing),
    // 1,200 a second.
    Aim {
        subject: Subject::Each(4),
        quantile: Quantile::P50,
        base: Base::Time(Duration::from_micros(833)),
        at_most: 1.0,
        rank: Rank::Final,
    },
    aim(Subject::ColdRun, Quantile::P50, PYTHON, 2.0, Rank::Final),
    cycle(Preload::Numpy),
    aim(
        Subject::Result(PANDAS),
        Quantile::P50,
        Subject::Python(PANDAS),
        0.01,
        Rank::Final,
    ),
    cycle(PANDAS),
    Aim {
        subject: Subject::Call(Client::Python),
        quantile: Quantile::P50,
        base: Base::Time(Duration::from_micros(150)),
        at_most: 1.0,
        rank: Rank::Final,
    },
    aim(
        Subject::Create(Client::Python),
        Quantile::P50,
        Subject::Create(Client::Rust),
        1.3,
        Rank::Final,
    ),
];

const fn aim(subject: Subject, quantile: Quantile, base: Subject, at_most: f64, rank: Rank) -> Aim {
    Aim {
        subject,
        quantile,
        base: Base::Median(base),
        at_most,
        rank,
    }
}

const fn cycle(preload: Preload) -> Aim {
    let (subject, base) = (Subject::Cycle(preload), Subject::BareFork(preload));
    aim(subject, Quantile::P50, base, 2.0, Rank::Final)
}

/// A ratio with the interval that this run leaves open.
#[derive(Clone, Copy, Debug)]
pub struct Ratio {
    pub low: f64,
    pub value: f64,
    pub high: f64,
}

impl Ratio {
    /// The interval is that of both quantiles, widened by the spread of the base: how far one
    /// process of the very same kind was from the next on this machine, at this time.
    pub fn of(subject: &Summary, quantile: Quantile, base: &Summary) -> Self {
        let (above, below) = (subject.estimate(quantile.share()), base.estimate(0.5));
        let noise = 1.0 + base.spread();
        Self {
            low: quotient(above.low, below.high) / noise,
            value: quotient(above.value, below.value),
            high: quotient(above.high, below.low) * noise,
        }
    }

    /// The interval is that of the quantile.
    pub fn of_time(subject: &Summary, quantile: Quantile, base: Duration) -> Self {
        let above = subject.estimate(quantile.share());
        Self {
            low: quotient(above.low, base),
            value: quotient(above.value, base),
            high: quotient(above.high, base),
        }
    }

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

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verdict {
    Met,
    NotMet,
    /// The aim lies within the interval.
    Unclear,
}

impl Verdict {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::NotMet => "not met",
            Self::Unclear => "too close to tell",
        }
    }
}
