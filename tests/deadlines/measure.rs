//! Drives each guest to its limit, one after another, and measures how long its end takes.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sandfork::internals::plan::SandboxPlan as _;
use sandfork::session::{Cell, SessionState};
use sandfork::{Error, FileSystem, Outcome, Override, Phases, Policy, Request, Sandbox, Status};
use sandfork_measure::Samples;
use serde::Serialize;

use crate::processes::{Process, Role, family};
use crate::unwilling::{GUESTS, Guest, Held, Network};

/// The time that a cell has to end after it was interrupted.
pub const GRACE: Duration = Duration::from_secs(1);

/// A guest that takes longer to end has failed. Generous, because the machine may be busy.
const GIVE_UP: Duration = Duration::from_secs(60);

const LIMITS: [&str; 5] = [
    "limits.wall=5m",
    "limits.cpu=5m",
    "limits.memory=320MiB",
    "limits.pids=48",
    "filesystem.tmp_size=4MiB",
];

/// The results of all guests.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The enforced level.
    pub level: String,
    pub kinds: Vec<Kind>,
    /// The times of all kinds together.
    pub all: Times,
    /// What went wrong.
    pub wrong: Vec<String>,
}

/// The results of the guests of one kind.
#[derive(Debug, Serialize)]
pub struct Kind {
    pub name: &'static str,
    pub guests: usize,
    /// The number of guests that were prepared when their time was over.
    pub ready: usize,
    pub times: Times,
}

/// Times from the limit until the caller had the outcome, in microseconds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Times {
    pub p50: u128,
    pub p99: u128,
    pub max: u128,
}

impl Times {
    fn of(samples: &Samples) -> Option<Self> {
        let summary = samples.summary()?;
        let at = |q| summary.quantile(q).as_micros();
        Some(Self {
            p50: at(0.5),
            p99: at(0.99),
            max: at(1.0),
        })
    }
}

/// Runs about this many guests, the same number of each kind.
pub fn measure(guests: usize) -> Result<Report, Error> {
    let sandbox = build(&[])?;
    let with_network = build(&["network.mode=loopback"])?;
    let mut wrong = Vec::new();
    let (mut all, mut kinds) = (Samples::default(), Vec::new());
    for guest in GUESTS {
        let mut samples = Samples::default();
        let mut ready = 0;
        for _ in 0..guests.div_ceil(GUESTS.len()) {
            let sandbox = match guest.network {
                Network::None => &sandbox,
                Network::Loopback => &with_network,
            };
            let end = end(sandbox, guest)?;
            wrong.extend(end.wrong(guest));
            ready += usize::from(end.was_ready);
            samples.push(end.beyond);
            all.push(end.beyond);
        }
        let times = Times::of(&samples).expect("at least one sample");
        eprintln!("{}: {times:?}, {ready} ready", guest.name);
        kinds.push(Kind {
            name: guest.name,
            guests: samples.times().len(),
            ready,
            times,
        });
    }
    Ok(Report {
        level: sandbox.plan().level.to_string(),
        kinds,
        all: Times::of(&all).expect("at least one sample"),
        wrong,
    })
}

/// The end of one guest.
struct End {
    status: Status,
    was_ready: bool,
    beyond: Duration,
    /// Processes that were alive when the caller had the outcome.
    survivors: Vec<Process>,
}

impl End {
    fn wrong(&self, guest: Guest) -> Option<String> {
        let Self {
            status,
            survivors,
            beyond,
            ..
        } = self;
        let name = guest.name;
        if *status != Status::Timeout {
            return Some(format!("{name}: ended with {status}"));
        }
        if !survivors.is_empty() {
            return Some(format!("{name}: is survived by {survivors:?}"));
        }
        (*beyond > GIVE_UP).then(|| format!("{name}: took {beyond:?} longer than it had"))
    }
}

fn end(sandbox: &Arc<Sandbox>, guest: Guest) -> Result<End, Error> {
    match guest.held {
        Held::Run => {
            let request = Request::python(guest.source()).wall(guest.limit);
            let asked = Instant::now();
            let outcome = sandbox.run(request)?;
            let (took, survivors) = (asked.elapsed(), survivors());
            // The clock of a run starts when it receives its code.
            let Phases {
                place,
                fork,
                jail,
                verify,
                ..
            } = outcome.usage().phases;
            let had = place + fork + jail + verify + guest.limit;
            Ok(end_of(&outcome, took.saturating_sub(had), survivors))
        }
        Held::Cell => {
            let mut session = sandbox.session()?;
            let asked = Instant::now();
            let report = session.run(Cell::new(guest.source()).wall(guest.limit))?;
            let took = asked.elapsed();
            let (had, survivors) = match report.session() {
                SessionState::Ended => (guest.limit + GRACE, survivors()),
                SessionState::Live => (guest.limit, Vec::new()),
            };
            Ok(end_of(
                report.outcome(),
                took.saturating_sub(had),
                survivors,
            ))
        }
    }
}

fn end_of(outcome: &Outcome, beyond: Duration, survivors: Vec<Process>) -> End {
    End {
        status: outcome.status(),
        was_ready: outcome.stdout() == "on\n",
        beyond,
        survivors,
    }
}

/// Returns the workers and the processes they started that stay alive. A killed process whose resources the kernel
/// releases only after the caller has its outcome disappears in the end, and does not count.
fn survivors() -> Vec<Process> {
    let begun = Instant::now();
    loop {
        let mut left = family(std::process::id());
        left.retain(|process| matches!(process.role, Role::Worker) && !process.is_zombie());
        if left.is_empty() || begun.elapsed() > GIVE_UP {
            return left;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

fn build(more: &[&str]) -> Result<Arc<Sandbox>, Error> {
    let sets = LIMITS.iter().chain(more).map(|set| set.parse());
    let sets: Result<Vec<Override>, _> = sets.collect();
    let policy = sets.and_then(|sets| Policy::load("standard", &sets, &FileSystem));
    let policy = policy.expect("a valid built-in policy");
    let sandbox = Sandbox::builder().policy(policy).ready(0).build()?;
    // The first run does one-time work, which is not part of an end.
    sandbox.run("pass")?;
    Ok(Arc::new(sandbox))
}
