//! The targets, as ratios between things that are measured in the same run.

use std::collections::BTreeMap;
use std::time::Duration;

use sandfork_measure::Quantile::{self, P50, P99};
use sandfork_measure::Rank::{self, Final, First};
use sandfork_measure::{Aim, Crowd, Programs, Ratio, Summary};

use self::Of::{Median, Time};
use crate::subject::Subject::{
    self, BareFork, Call, ColdRun, Create, Cycle, Each, ForkOfSession, Python, Ready,
};
use crate::subject::{Client, Preload};

/// The base of a ratio.
#[derive(Clone, Copy, Debug)]
enum Of {
    /// The median of something measured in the same run.
    Median(Subject),
    /// An absolute time in microseconds.
    Time(u64),
}

const PYTHON: Subject = Python(Preload::Nothing);
const BARE: Subject = Subject::Result(Preload::Nothing);
const NUMPY: Preload = Preload::Numpy;
const PANDAS: Preload = Preload::NumpyAndPandas;
const FORK: Subject = BareFork(Preload::Nothing);

/// A quantile of the subject, the base, the most that their ratio may be, and the target's rank.
type Goal = (Subject, Quantile, Of, f64, Rank);

const GOALS: [Goal; 18] = [
    (BARE, P50, Median(PYTHON), 0.20, First),
    (BARE, P50, Median(PYTHON), 0.10, Final),
    (BARE, P99, Median(PYTHON), 0.35, Final),
    (Ready, P50, Median(PYTHON), 0.03, Final),
    (Cycle(Preload::Nothing), P50, Median(FORK), 2.0, Final),
    // 1,200 per second.
    (Each(4), P50, Time(833), 1.0, Final),
    (ColdRun, P50, Median(PYTHON), 2.0, Final),
    (Cycle(NUMPY), P50, Median(BareFork(NUMPY)), 2.0, Final),
    (
        Subject::Result(PANDAS),
        P50,
        Median(Python(PANDAS)),
        0.01,
        Final,
    ),
    (Cycle(PANDAS), P50, Median(BareFork(PANDAS)), 2.0, Final),
    (Call(Client::Python), P50, Time(150), 1.0, Final),
    (Create(Client::Python), P50, Median(NEW), 1.3, Final),
    (ForkOfSession(5), P50, Time(6_000), 1.0, First),
    (ForkOfSession(5), P50, Time(3_000), 1.0, Final),
    (ForkOfSession(50), P50, Time(20_000), 1.0, First),
    (ForkOfSession(50), P50, Time(10_000), 1.0, Final),
    (ForkOfSession(500), P50, Time(50_000), 1.0, First),
    (ForkOfSession(500), P50, Time(25_000), 1.0, Final),
];
const NEW: Subject = Create(Client::Rust);

/// Returns the targets whose subjects were measured. A quantile with too few times is not compared.
pub fn of_times(measured: &BTreeMap<Subject, Summary>) -> Vec<Aim> {
    let reached = |&(subject, quantile, base, at_most, rank): &Goal| {
        let times = measured.get(&subject)?;
        times.tail(quantile.share())?;
        let (ratio, base) = match base {
            Median(base) => {
                let ratio = Ratio::of(times, quantile, measured.get(&base)?);
                (ratio, base.to_string())
            }
            Time(us) => {
                let ratio = Ratio::of_time(times, quantile, Duration::from_micros(us));
                (ratio, format!("{us} us"))
            }
        };
        Some(Aim {
            subject: subject.to_string(),
            quantile: Some(quantile),
            base,
            ratio,
            at_most,
            rank,
        })
    };
    GOALS.iter().filter_map(reached).collect()
}

/// The most memory of a session in bytes.
const SESSION_MEMORY: u32 = 2_000_000;

/// Returns the target for the memory of one session at the largest number of live sessions.
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
        rank: Final,
    })
}

/// The most memory of ten forks of the largest session in bytes.
const MEMORY_OF_FORKS: u32 = 600_000_000;

/// Returns the target for the memory of forks. `shares` has the proportional set size of each fork of the largest
/// session.
pub fn of_forks(shares: &[u64]) -> Aim {
    #[allow(clippy::cast_precision_loss)] // megabytes
    let all = shares.iter().sum::<u64>() as f64;
    Aim {
        subject: format!("PSS of {} forks of 500 MB together", shares.len()),
        quantile: None,
        base: format!("{} MB", MEMORY_OF_FORKS / 1_000_000),
        ratio: Ratio::exact(all / f64::from(MEMORY_OF_FORKS)),
        at_most: 1.0,
        rank: First,
    }
}

/// Returns the target for computing inside, compared with computing outside.
pub fn of_programs(programs: &Programs) -> Option<Aim> {
    Some(Aim {
        subject: "computing inside a sandbox".to_owned(),
        quantile: Some(P50),
        base: "the same outside".to_owned(),
        ratio: programs.cpu_bound()?,
        at_most: 1.01,
        rank: Final,
    })
}
