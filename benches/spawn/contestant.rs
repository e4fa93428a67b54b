//! The contestants, which take turns: each repeats its operation several times and reports the times.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use sandfork::internals::plan::PRELOAD_ONLY;
use sandfork::internals::protocol::Value;
use sandfork::{Outcome, Sandbox};

use crate::common::{Conversation, policy};
use crate::subject::{IN_FLIGHT, Preload, Subject};

/// A contestant, which takes one turn on request.
pub trait Contestant {
    /// Repeats the operation several times and passes each time to `record`.
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()>;
}

/// Fresh sandboxes of one warm zygote.
pub struct Sandboxes {
    preload: Preload,
    sandbox: Sandbox,
    /// The repetitions in one turn: a process start takes as long as many of them.
    repeats: usize,
}

impl Sandboxes {
    pub fn new(python: &Path, preload: Preload, repeats: usize) -> Result<Self> {
        Self::with(python, preload, 0, repeats)
    }

    fn with(python: &Path, preload: Preload, ready: usize, repeats: usize) -> Result<Self> {
        let policy = policy(python, preload.modules())?;
        let sandbox = Sandbox::builder().policy(policy).ready(ready).build()?;
        run(&sandbox)?;
        Ok(Self {
            preload,
            sandbox,
            repeats,
        })
    }
}

impl Contestant for Sandboxes {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()> {
        for _ in 0..self.repeats {
            let start = Instant::now();
            let outcome = run(&self.sandbox)?;
            let cycle = start.elapsed();
            let phases = outcome.usage().phases;
            record(Subject::Result(self.preload), phases.until_result());
            record(Subject::Cycle(self.preload), cycle);
            for (phase, time) in phases.each() {
                record(Subject::Phase(self.preload, phase), time);
            }
        }
        Ok(())
    }
}

/// Runs code that computes something.
pub fn run(sandbox: &Sandbox) -> Result<Outcome> {
    let outcome = sandbox.run("6 * 7")?;
    match outcome.value() {
        Some(Value::Int(42)) => Ok(outcome),
        _ => bail!("the sandbox answered {outcome:?}"),
    }
}

/// Fresh sandboxes in workers that were ready before the request.
pub struct Ready(Sandboxes);

/// Longer than making a worker takes.
pub const UNTIL_READY: Duration = Duration::from_millis(8);

impl Ready {
    pub fn new(python: &Path, repeats: usize) -> Result<Self> {
        let sandboxes = Sandboxes::with(python, Preload::Nothing, 2, repeats)?;
        Ok(Self(sandboxes))
    }
}

impl Contestant for Ready {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()> {
        for _ in 0..self.0.repeats {
            std::thread::sleep(UNTIL_READY);
            let phases = run(&self.0.sandbox)?.usage().phases;
            // Without a ready worker, the run had to fork.
            if phases.fork.is_zero() {
                record(Subject::Ready, phases.until_result());
            }
        }
        Ok(())
    }
}

/// Fresh sandboxes, several at a time.
pub struct InFlight(Sandboxes);

/// The number of sandboxes made in one turn, at each number in flight.
const IN_ONE_TURN: usize = 32;

impl InFlight {
    pub fn new(python: &Path) -> Result<Self> {
        Ok(Self(Sandboxes::with(python, Preload::Nothing, 0, 1)?))
    }
}

impl Contestant for InFlight {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()> {
        for in_flight in IN_FLIGHT {
            let start = Instant::now();
            let ran = std::thread::scope(|scope| {
                let sandbox = &self.0.sandbox;
                let runs = || (0..IN_ONE_TURN / in_flight).all(|_| run(sandbox).is_ok());
                let threads: Vec<_> = (0..in_flight).map(|_| scope.spawn(runs)).collect();
                threads
                    .into_iter()
                    .all(|thread| thread.join().is_ok_and(|ran| ran))
            });
            ensure!(ran, "a sandbox in flight did not answer");
            let count = u32::try_from(IN_ONE_TURN)?;
            record(Subject::Each(in_flight), start.elapsed() / count);
        }
        Ok(())
    }
}

/// A warm interpreter that forks and measures its own times.
pub struct BareForks {
    preload: Preload,
    repeats: usize,
    probe: Conversation,
}

impl BareForks {
    pub fn new(python: &Path, preload: Preload, repeats: usize) -> Result<Self> {
        let mut command = Command::new(python);
        command
            .args(["-I", "-c", include_str!("fork_probe.py")])
            .args(preload.modules())
            // As for a zygote: forking an interpreter with threads would measure something else.
            .envs(PRELOAD_ONLY);
        Ok(Self {
            preload,
            repeats,
            probe: Conversation::start(command)?,
        })
    }
}

impl Contestant for BareForks {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()> {
        self.probe.send(&self.repeats.to_string())?;
        for time in read_times(&mut self.probe, self.repeats)? {
            record(Subject::BareFork(self.preload), time);
        }
        Ok(())
    }
}

/// Reads a line of `count` times in nanoseconds from a process that measures its own times.
pub fn read_times(probe: &mut Conversation, count: usize) -> Result<Vec<Duration>> {
    let line = probe.receive()?;
    let times = line.split_ascii_whitespace().map(str::parse);
    match times.collect::<Result<Vec<u64>, _>>() {
        Ok(times) if times.len() == count => {
            Ok(times.into_iter().map(Duration::from_nanos).collect())
        }
        // The line is the reason why there is no time.
        _ => bail!("{}", line.trim()),
    }
}
