//! The targets, as ratios between things that are measured in the same run.

use std::collections::BTreeMap;
use std::time::Duration;

use sandfork_measure::{Aim, Crowd, Programs, Quantile, Rank, Ratio, Summary};

use crate::subject::{Client, Preload, Subject};

/// A quantile of the subject, as a multiple of the base.
#[derive(Clone, Copy, Debug)]
struct Goal {
    subject: Subject,
    quantile: Quantile,
    base: Of,
    at_most: f64,
    rank: Rank,
}

/// The base of a ratio.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// The median of something measured in the same run.
    Median(Subject),
    /// An absolute time.
    Time(Duration),
}

const PYTHON: Subject = Subject::Python(Preload::Nothing);
const BARE: Subject = Subject::Result(Preload::Nothing);
const PANDAS: Preload = Preload::NumpyAndPandas;

const GOALS: [Goal; 12] = [
    Goal {
        rank: Rank::First,
        ..goal(BARE, PYTHON, 0.20)
    },
    goal(BARE, PYTHON, 0.10),
    Goal {
        quantile: Quantile::P99,
        ..goal(BARE, PYTHON, 0.35)
    },
    goal(Subject::Ready, PYTHON, 0.03),
    cycle(Preload::Nothing),
    // 1,200 a second.
    within(Subject::Each(4), Duration::from_micros(833)),
    goal(Subject::ColdRun, PYTHON, 2.0),
    cycle(Preload::Numpy),
    goal(Subject::Result(PANDAS), Subject::Python(PANDAS), 0.01),
    cycle(PANDAS),
    within(Subject::Call(Client::Python), Duration::from_micros(150)),
    goal(
        Subject::Create(Client::Python),
        Subject::Create(Client::Rust),
        1.3,
    ),
];

const fn goal(subject: Subject, base: Subject, at_most: f64) -> Goal {
    Goal {
        subject,
        quantile: Quantile::P50,
        base: Of::Median(base),
        at_most,
        rank: Rank::Final,
    }
}

const fn cycle(preload: Preload) -> Goal {
    goal(Subject::Cycle(preload), Subject::BareFork(preload), 2.0)
}

const fn within(subject: Subject, time: Duration) -> Goal {
    Goal {
        base: Of::Time(time),
        ..goal(subject, subject, 1.0)
    }
}

/// The aims whose things were measured. A quantile with too few times is not compared.
pub fn of_times(measured: &BTreeMap<Subject, Summary>) -> Vec<Aim> {
    let reached = |goal: &Goal| {
        let subject = measured.get(&goal.subject)?;
        subject.tail(goal.quantile.share())?;
        let (ratio, base) = match goal.base {
            Of::Median(base) => {
                let ratio = Ratio::of(subject, goal.quantile, measured.get(&base)?);
                (ratio, base.to_string())
            }
            Of::Time(time) => {
                let ratio = Ratio::of_time(subject, goal.quantile, time);
                (ratio, format!("{} us", time.as_micros()))
            }
        };
        Some(Aim {
            subject: goal.subject.to_string(),
            quantile: Some(goal.quantile),
            base,
            ratio,
            at_most: goal.at_most,
            rank: goal.rank,
        })
    };
    GOALS.iter().filter_map(reached).collect()
}

/// The most memory of a session, bytes.
const SESSION_MEMORY: u32 = 2_000_000;

/// The memory of one session at the largest number of live sessions.
pub fn of_crowds(crowds: &[Crowd]) -> Option<Aim> {
    let largest = crowds.iter().max_by_key(|crowd| crowd.sessions)?;
    #[allow(clippy::cast_precision_loss)] // megabytes
    let resident = largest.resident? as f64;
    Some(Aim {
        subject: format!("PSS of an idle session, {} live, median", largest.sessions),
        quantile: None,
        base: format!("{} MB", SESSION_MEMORY / 1_000_000),
        ratio: Ratio::exact(resident / f64::from(SESSION_MEMORY)),
        at_most: 1.0,
        rank: Rank::Final,
    })
}

/// Computing inside, compared with computing outside.
pub fn of_programs(programs: &Programs) -> Option<Aim> {
    Some(Aim {
        subject: "computing inside a sandbox".to_owned(),
        quantile: Some(Quantile::P50),
        base: "the same outside".to_owned(),
        ratio: programs.cpu_bound()?,
        at_most: 1.01,
        rank: Rank::Final,
    })
}
