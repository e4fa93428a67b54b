//! Those who take turns: each does its thing a few times and hands over the times.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use sandfork::plan::PRELOAD_ONLY;
use sandfork::policy::{BuiltInsOnly, Override, Policy};
use sandfork::protocol::Value;
use sandfork::{Outcome, Sandbox};

use crate::subject::{Preload, Subject};

pub type Error = Box<dyn std::error::Error>;

/// Takes a turn when it is asked to.
pub trait Contestant {
    /// Does its thing a few times and tells `record` each time that it took.
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error>;
}

/// How often the cheap ones, which a process start outlasts many times, have to go in one turn.
const REPEATS: usize = 4;

/// Fresh sandboxes of one warm zygote.
pub struct Sandboxes {
    preload: Preload,
    sandbox: Sandbox,
    last: Outcome,
}

impl Sandboxes {
    pub fn new(python: &Path, preload: Preload) -> Result<Self, Error> {
        Self::with(python, preload, 0)
    }

    fn with(python: &Path, preload: Preload, ready: usize) -> Result<Self, Error> {
        let mut settings = vec![format!("python.interpreter={}", python.display())];
        settings.extend(
            preload
                .modules()
                .iter()
                .map(|name| format!("python.preload={name}")),
        );
        let settings: Vec<Override> = settings
            .iter()
            .map(|setting| setting.parse())
            .collect::<Result<_, _>>()?;
        let policy = Policy::load("standard", &settings, &BuiltInsOnly)?;
        let sandbox = Sandbox::builder().policy(policy).ready(ready).build()?;
        let last = run(&sandbox)?;
        Ok(Self {
            preload,
            sandbox,
            last,
        })
    }

    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    fn one(&self) -> Option<()> {
        run(&self.sandbox).ok().map(drop)
    }

    /// What the latest run came to.
    pub fn last(&self) -> &Outcome {
        &self.last
    }
}

impl Contestant for Sandboxes {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error> {
        for _ in 0..REPEATS {
            let start = Instant::now();
            self.last = run(&self.sandbox)?;
            let cycle = start.elapsed();
            let phases = self.last.usage().phases;
            record(Subject::Result(self.preload), phases.until_result());
            record(Subject::Cycle(self.preload), cycle);
            for (phase, time) in phases.each() {
                record(Subject::Phase(self.preload, phase), time);
            }
        }
        Ok(())
    }
}

fn run(sandbox: &Sandbox) -> Result<Outcome, Error> {
    let outcome = sandbox.run("6 * 7")?;
    match outcome.value() {
        Some(Value::Int(42)) => Ok(outcome),
        _ => Err(format!("the sandbox answered {outcome:?}").into()),
    }
}

/// Fresh sandboxes in workers that stood ready when they were asked for.
pub struct Ready(Sandboxes);

/// Longer than a worker takes to be made.
pub const UNTIL_READY: Duration = Duration::from_millis(8);

impl Ready {
    pub fn new(python: &Path) -> Result<Self, Error> {
        Ok(Self(Sandboxes::with(python, Preload::Nothing, 2)?))
    }
}

impl Contestant for Ready {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error> {
        for _ in 0..REPEATS {
            std::thread::sleep(UNTIL_READY);
            let phases = run(&self.0.sandbox)?.usage().phases;
            // Another did not stand ready.
            if phases.fork.is_zero() {
                record(Subject::Ready, phases.until_result());
            }
        }
        Ok(())
    }
}

/// Fresh sandboxes, several at a time.
pub struct InFlight(Sandboxes);

/// How many are in flight.
pub const IN_FLIGHT: [usize; 5] = [1, 2, 4, 8, 16];

/// How many are made in one turn, at each number in flight.
const IN_ONE_TURN: usize = 32;

impl InFlight {
    pub fn new(python: &Path) -> Result<Self, Error> {
        Ok(Self(Sandboxes::with(python, Preload::Nothing, 0)?))
    }
}

impl Contestant for InFlight {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error> {
        for in_flight in IN_FLIGHT {
            let start = Instant::now();
            let ran = std::thread::scope(|scope| {
                let runs = || (0..IN_ONE_TURN / in_flight).try_for_each(|_| self.0.one());
                let threads: Vec<_> = (0..in_flight).map(|_| scope.spawn(runs)).collect();
                threads
                    .into_iter()
                    .all(|thread| matches!(thread.join(), Ok(Some(()))))
            });
            if !ran {
                return Err("a sandbox in flight did not answer".into());
            }
            let count = u32::try_from(IN_ONE_TURN)?;
            record(Subject::Each(in_flight), start.elapsed() / count);
        }
        Ok(())
    }
}

/// A process, started and waited for.
pub struct Process {
    subject: Subject,
    command: Command,
}

impl Process {
    /// Fails when the command does: what cannot run is not compared.
    pub fn new(subject: Subject, mut command: Command) -> Result<Self, Error> {
        let output = command.stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            let words = words.lines().next().unwrap_or("it says nothing");
            return Err(format!("{}: {words}", output.status).into());
        }
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { subject, command })
    }
}

impl Contestant for Process {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error> {
        let start = Instant::now();
        let status = self.command.status()?;
        record(self.subject, start.elapsed());
        if status.success() {
            Ok(())
        } else {
            Err(format!("{}: {status}", self.subject).into())
        }
    }
}

/// A warm interpreter that forks, and is its own clock.
pub struct BareForks {
    preload: Preload,
    child: Child,
    ask: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl BareForks {
    pub fn new(python: &Path, preload: Preload) -> Result<Self, Error> {
        let mut child = Command::new(python)
            .args(["-I", "-c", include_str!("fork_probe.py")])
            .args(preload.modules())
            // As for a zygote: an interpreter with threads is another thing to fork.
            .envs(PRELOAD_ONLY.map(|name| (name, "1")))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let ask = child.stdin.take();
        let answers = child.stdout.take().ok_or("the probe has no output")?;
        Ok(Self {
            preload,
            child,
            ask,
            answers: BufReader::new(answers),
        })
    }
}

impl Contestant for BareForks {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error> {
        let ask = self.ask.as_mut().ok_or("the probe has no input")?;
        writeln!(ask, "{REPEATS}")?;
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        let times: Vec<u64> = line
            .split_ascii_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        if times.len() != REPEATS {
            return Err("the fork probe ended".into());
        }
        for time in times {
            record(Subject::BareFork(self.preload), Duration::from_nanos(time));
        }
        Ok(())
    }
}

impl Drop for BareForks {
    fn drop(&mut self) {
        // The end of its input ends it.
        drop(self.ask.take());
        _ = self.child.wait();
    }
}
