//! Measures copies of live sessions: how long they take, and how much memory forks share.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sandfork::internals::policy::BuiltInsOnly;
use sandfork::session::{Session, Snapshot};
use sandfork::{Override, Policy, Sandbox};
use sandfork_measure::Samples;
use tempfile::TempDir;

use crate::Options;
use crate::common::Conversation;
use crate::contestant::{Contestant, UNTIL_READY, read_times};
use crate::ground::Ground;
use crate::subject::Subject;

/// The memory that sessions hold in megabytes, the largest last.
const SIZES: [usize; 3] = [5, 50, 500];

/// The number of forks of the largest session that are alive at once.
const FORKS: usize = 10;

/// Creates a state of this many megabytes: one half of it objects, the other half a single block.
pub const STATE: &str = include_str!("state.py");

/// Times by subject, and the proportional set size in bytes of each fork of the largest session.
pub type Measured = (BTreeMap<Subject, Samples>, Vec<u64>);

/// Measures in rounds, in each of which each size takes a turn.
pub fn measure(ground: &Ground, options: &Options) -> Result<Measured> {
    let rounds = options.full_or_quick(40, 8);
    let mut measured: BTreeMap<Subject, Samples> = BTreeMap::new();
    let mut entries: Vec<Box<dyn Contestant>> = Vec::new();
    for size in SIZES {
        entries.push(Box::new(Copies::new(&ground.python, size)?));
        entries.push(Box::new(OsForks::new(&ground.python, size)?));
    }
    for round in 0..=rounds {
        for contestant in &mut entries {
            contestant.turn(&mut |subject, time| {
                // The first round warms caches.
                if round > 0 {
                    measured.entry(subject).or_default().push(time);
                }
            })?;
        }
    }
    drop(entries);
    let mut largest = Copies::new(&ground.python, SIZES[SIZES.len() - 1])?;
    Ok((measured, largest.shares()?))
}

/// The idle time until a session is paused.
const PAUSE_AFTER: &str = "20ms";

/// A session of one size, another one that is paused between two turns, and the saved state of the first.
struct Copies {
    size: usize,
    sandbox: Arc<Sandbox>,
    directory: TempDir,
    session: Session,
    snapshot: Snapshot,
    paused: Session,
}

/// Builds a sandbox and opens a session of it that holds this many megabytes.
fn session_of(python: &Path, size: usize, pause_after: &str) -> Result<(Arc<Sandbox>, Session)> {
    let settings = [
        format!("python.interpreter={}", python.display()),
        "limits.memory=2GiB".into(),
        "session.snapshot_bytes=4GiB".into(),
        format!("session.pause_after={pause_after}"),
    ];
    let settings = settings.iter().map(|setting| setting.parse());
    let settings: Vec<Override> = settings.collect::<Result<_, _>>()?;
    let policy = Policy::load("standard", &settings, &BuiltInsOnly)?;
    let sandbox = Arc::new(Sandbox::builder().policy(policy).build()?);
    let mut session = sandbox.session()?;
    let made = session.run(format!("megabytes = {size}\n{STATE}"))?;
    ensure!(made.outcome().is_ok(), "no state: {:?}", made.outcome());
    Ok((sandbox, session))
}

/// Waits until a session is paused.
fn await_pause(session: &Session) -> Result<()> {
    let until = Instant::now() + Duration::from_secs(60);
    while !session.is_paused() {
        ensure!(Instant::now() < until, "a session is not paused");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

impl Copies {
    fn new(python: &Path, size: usize) -> Result<Self> {
        let (sandbox, mut session) = session_of(python, size, "never")?;
        let (_, paused) = session_of(python, size, PAUSE_AFTER)?;
        await_pause(&paused)?;
        let snapshot = session.snapshot()?;
        Ok(Self {
            size,
            sandbox,
            directory: tempfile::tempdir()?,
            session,
            snapshot,
            paused,
        })
    }

    /// Returns the proportional set size of each of several forks (proc(5), `Pss`).
    fn shares(&mut self) -> Result<Vec<u64>> {
        let forks = (0..FORKS).map(|_| self.snapshot.fork());
        let mut forks: Vec<Session> = forks.collect::<Result<_, _>>()?;
        let mut share = |forked: &mut Session| {
            let report = forked.run(SHARE)?;
            let value = report.outcome().value().and_then(sandfork::Value::as_i64);
            u64::try_from(value.context("a fork did not tell its memory")?).map_err(Into::into)
        };
        forks.iter_mut().map(&mut share).collect()
    }
}

const SHARE: &str = "int(next(line.split()[1] for line in open('/proc/self/smaps_rollup') if line.startswith('Pss:'))) << 10";

impl Contestant for Copies {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()> {
        let size = self.size;
        let start = Instant::now();
        let snapshot = self.session.snapshot()?;
        record(Subject::Snapshot(size), start.elapsed());
        drop(snapshot);
        std::thread::sleep(UNTIL_READY);
        let start = Instant::now();
        let mut forked = self.snapshot.fork()?;
        record(Subject::ForkOfSession(size), start.elapsed());
        let report = forked.run("len(objects) > 0")?;
        ensure!(report.outcome().is_ok(), "a fork did not compute");
        drop(forked);
        std::thread::sleep(UNTIL_READY);
        let start = Instant::now();
        self.session.rollback(&self.snapshot)?;
        record(Subject::Rollback(size), start.elapsed());
        std::thread::sleep(UNTIL_READY);
        let path = self.directory.path().join("state");
        let start = Instant::now();
        self.snapshot.save(&path)?;
        record(Subject::Save(size), start.elapsed());
        let start = Instant::now();
        let resumed = self.sandbox.resume(&path)?;
        record(Subject::FromFile(size), start.elapsed());
        drop(resumed);
        std::thread::sleep(UNTIL_READY);
        let start = Instant::now();
        let report = self.paused.run("len(objects) > 0")?;
        record(Subject::Resume(size), start.elapsed());
        ensure!(report.outcome().is_ok(), "a session did not go on");
        await_pause(&self.paused)
    }
}

/// An interpreter with the same state that forks itself.
struct OsForks {
    size: usize,
    probe: Conversation,
}

impl OsForks {
    fn new(python: &Path, size: usize) -> Result<Self> {
        let code = format!(
            "megabytes = {size}\n{STATE}\n{}",
            include_str!("fork_probe.py")
        );
        let mut command = Command::new(python);
        command.args(["-I", "-c", &code]);
        Ok(Self {
            size,
            probe: Conversation::start(command)?,
        })
    }
}

impl Contestant for OsForks {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()> {
        self.probe.send("1")?;
        for time in read_times(&mut self.probe, 1)? {
            record(Subject::OsFork(self.size), time);
        }
        Ok(())
    }
}
