//! Measures many live sessions: the resources of each, and the time of a cell among them.
//!
//! The number of sessions grows from 1 to 1,000 and then shrinks again. Cells are timed on the way
//! up and on the way down, so that a machine that slows down affects all sizes alike.

mod census;

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use sandfork::Sandbox;
use sandfork::internals::plan::SandboxPlan as _;
use sandfork::session::Session;
use sandfork_measure::{Crowd, Samples};

use crate::Options;
use crate::common::policy;
use crate::ground::Ground;

use self::census::{Census, Own};

/// The numbers of live sessions.
const SIZES: [usize; 4] = [1, 10, 100, 1_000];

/// The time after which the kernel has finished its deferred work for a new session.
const SETTLED: Duration = Duration::from_millis(300);

/// Returns one result for each size, and one line for each failed measurement.
pub fn measure(ground: &Ground, options: &Options) -> Result<(Vec<Crowd>, Vec<String>)> {
    raise_open_files();
    let (sizes, count) = options.full_or_quick((&SIZES[..], 1_000), (&SIZES[..3], 200));
    let policy = policy(&ground.python, &[])?;
    // Ready workers would count as sessions.
    let sandbox = Sandbox::builder().policy(policy).ready(0).build()?;
    let mut sessions = Sessions::new(sandbox);
    let (mut crowds, mut samples) = (Vec::new(), Vec::new());
    let mut left_out = Vec::new();
    for &size in sizes {
        if let Err(why) = sessions.grow(size) {
            let next = sessions.live.len() + 1;
            left_out.push(format!("{size} live sessions: number {next} failed: {why}"));
            break;
        }
        std::thread::sleep(SETTLED);
        crowds.push(sessions.census());
        let mut cells = Cells::default();
        cells.take(&mut sessions, count)?;
        samples.push(cells);
    }
    for (crowd, cells) in crowds.iter().zip(&mut samples).rev() {
        sessions.live.truncate(crowd.sessions);
        cells.take(&mut sessions, count)?;
    }
    for (crowd, cells) in crowds.iter_mut().zip(samples) {
        crowd.cell = cells.each.summary();
        crowd.again = cells.again.summary();
    }
    if crowds.iter().any(|crowd| crowd.cgroup.is_none()) {
        left_out.push("memory by cgroup: none of a worker counts it on this host".to_owned());
    }
    if crowds.iter().any(|crowd| crowd.resident.is_none()) {
        left_out
            .push("PSS of sessions: only root may read it of another user's processes".to_owned());
    }
    Ok((crowds, left_out))
}

/// Raises RLIMIT_NOFILE as `sandfork serve` does: each session uses about twenty descriptors.
fn raise_open_files() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        // If the host refuses, fewer sessions are live at once, and the report says so.
        _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

struct Sessions {
    live: Vec<Session>,
    sandbox: Arc<Sandbox>,
    /// The resources of the supervisor before the first session.
    before: Own,
    next: usize,
}

impl Sessions {
    fn new(sandbox: Sandbox) -> Self {
        Self {
            live: Vec::new(),
            sandbox: Arc::new(sandbox),
            before: Own::now(),
            next: 0,
        }
    }

    /// Opens sessions up to `size`. Each new one runs a cell.
    fn grow(&mut self, size: usize) -> Result<()> {
        while self.live.len() < size {
            let mut session = self.sandbox.session()?;
            cell(&mut session)?;
            self.live.push(session);
        }
        Ok(())
    }

    fn census(&self) -> Crowd {
        let count = self.live.len() as u64;
        let cgroups = self.sandbox.plan().cgroup.as_ref();
        let census = Census::take(cgroups);
        let now = Own::now();
        let grown = |now: Option<u64>, before: Option<u64>| {
            let grown = now?.saturating_sub(before?);
            Some(grown / count)
        };
        Crowd {
            sessions: self.live.len(),
            resident: census.resident,
            cgroup: census.cgroup,
            supervisor: grown(now.resident, self.before.resident),
            shared: census.shared,
            descriptors: grown(now.descriptors, self.before.descriptors),
            processes: Some(census.processes / count),
            cell: None,
            again: None,
        }
    }
}

/// Times of cells among the live sessions.
#[derive(Default)]
struct Cells {
    /// Each cell in the next session.
    each: Samples,
    /// All cells in one session.
    again: Samples,
}

impl Cells {
    /// Measures `count` cells of both kinds.
    fn take(&mut self, sessions: &mut Sessions, count: usize) -> Result<()> {
        let live = &mut sessions.live;
        for _ in 0..count {
            sessions.next = (sessions.next + 1) % live.len();
            self.each.push(cell(&mut live[sessions.next])?);
        }
        for _ in 0..count {
            self.again.push(cell(&mut live[0])?);
        }
        Ok(())
    }
}

fn cell(session: &mut Session) -> Result<Duration> {
    let start = Instant::now();
    let report = session.run("x = 1")?;
    let time = start.elapsed();
    let outcome = report.outcome();
    ensure!(outcome.is_ok(), "a cell ended with {}", outcome.status());
    Ok(time)
}
