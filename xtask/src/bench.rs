//! Runs the benchmarks, with the environments for their comparisons.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;
use xshell::{Shell, cmd};

use crate::interpreters::{Interpreter, Versions};
use crate::{shell, test_envs, venv};

#[derive(Debug, clap::Args)]
pub struct Options {
    /// Run fewer rounds: enough for medians, but not for tails
    #[arg(long)]
    quick: bool,
    /// The interpreter to measure instead of the system's
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// The number of times `map` runs all programs
    #[arg(long)]
    rounds: Option<usize>,
    /// The number of programs `map` runs at once
    #[arg(long)]
    jobs: Option<usize>,
    /// `map`, or parts of the main benchmark: spawn, memory, overhead, snapshot
    #[arg(value_name = "PART", default_value = "all")]
    parts: Vec<String>,
}

/// Programs to run inside and outside a sandbox. The dependencies with which pyperformance starts processes
/// are left out: the benchmark runs the programs itself.
const PYPERFORMANCE: &str = "pyperformance==1.14.0\n";

/// A sandbox from PyPI, installed in the usual way.
const SANDLOCK: &str = "sandlock==0.9.0\n";

/// The system's interpreter: most users have it, and the speed of a self-built one depends on its build.
const OF_THE_SYSTEM: &str = "/usr/bin/python3";

/// Makes the environments, builds, and measures.
pub fn run(options: &Options) -> Result<()> {
    let sh = shell()?;
    let Options {
        quick,
        python,
        parts,
        ..
    } = options;
    if *parts == ["map"] {
        return run_map(&sh, options);
    }
    // The given interpreter, or else the system's, or else that of `PATH`.
    let mut candidates = [OF_THE_SYSTEM, "python3"].map(PathBuf::from).to_vec();
    if let Some(named) = python {
        candidates = vec![named.clone()];
    }
    let asked = candidates.iter().find_map(|python| {
        let interpreter = Interpreter::ask(python).filter(Interpreter::is_supported)?;
        Some((python, interpreter))
    });
    let (python, interpreter) = asked.context("no CPython 3.9 or later was found: install one")?;
    write_environments(&sh, &interpreter)?;
    let quick = quick.then_some("--quick");
    Ok(cmd!(
        sh,
        "cargo bench --bench spawn -- {parts...} {quick...} --python {python}"
    )
    .run()?)
}

/// Runs HumanEval through `sandfork map`, with the environment that has its programs.
fn run_map(sh: &Shell, options: &Options) -> Result<()> {
    let envs = test_envs::make(Versions::Ends)?.envs;
    // Uses the interpreter behind `python3`, as a user would, so that the numbers match a user's.
    let usual = Interpreter::ask(Path::new("python3"));
    let is_usual = |env: &&test_envs::TestEnv| Some(&env.interpreter) == usual.as_ref();
    let env = envs.iter().find(is_usual).or(envs.last());
    let python = env
        .context("there is no test environment")?
        .directory
        .join("bin/python");
    let rounds = options.rounds.map(|rounds| format!("--rounds={rounds}"));
    let jobs = options.jobs.map(|jobs| format!("--jobs={jobs}"));
    Ok(cmd!(
        sh,
        "cargo bench --bench map -- --python {python} {rounds...} {jobs...}"
    )
    .run()?)
}

/// Makes the missing environments and lists them for the benchmark. Environments that cannot be
/// made are left out: the rest of the comparison is still valid.
fn write_environments(sh: &Shell, interpreter: &Interpreter) -> Result<()> {
    let made = |what: &str, made: Result<PathBuf>| {
        made.inspect_err(|error| eprintln!("left out: {what}: {error:#}"))
            .ok()
    };
    let with = |package: &str| {
        let (name, _) = package.split_once('=').unwrap_or((package, ""));
        let directory = format!("{name}-{}", interpreter.version_text());
        venv::make(
            interpreter,
            &test_envs::place("bench-envs")?.join(directory),
            package,
        )
    };
    let modules = test_envs::make_for(interpreter).map(|env| env.directory.join("bin/python"));
    let environments = json!({
        "executable": interpreter.executable,
        "modules": made("numpy and pandas", modules),
        "pyperformance": made("pyperformance", with(PYPERFORMANCE)),
        "sandlock": made("sandlock", with(SANDLOCK)),
    });
    Ok(sh.write_file(
        "target/bench/environments.json",
        format!("{environments:#}\n"),
    )?)
}
