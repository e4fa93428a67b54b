//! Runs the tests of the Python package: most with each interpreter, and the rest once.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::thread;

use crate::Error;
use crate::clients;
use crate::interpreters::Interpreter;
use crate::tally::Tally;
use crate::test_envs::{TestEnv, TestEnvs};
use crate::venv::Venv;

const TOOLS: &str = include_str!("../python-tools.txt");

/// Which interpreters run the package's tests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Versions {
    /// The oldest and the newest, between which the others seldom differ.
    Ends,
    /// One of each version.
    All,
}

/// Runs the tests against this `sandfork` program.
pub fn test(
    workspace: &Path,
    envs: &TestEnvs,
    binary: &Path,
    versions: Versions,
) -> Result<Tally, Error> {
    let package = Package { workspace, binary };
    let newest = envs.envs.iter().max_by_key(|env| env.interpreter.version);
    let newest = newest.ok_or("no interpreter")?;
    let mut tally = package.check(&newest.interpreter)?;
    let runs = chosen(&envs.envs, versions)
        .into_iter()
        .map(|env| package.run_with(env, env.interpreter == newest.interpreter));
    tally.add(two_at_a_time(runs.collect::<Result<_, _>>()?)?);
    tally.add(package.test_wheel(newest)?);
    Ok(tally)
}

/// A run of pytest with one interpreter.
struct Run {
    title: String,
    pytest: Command,
}

/// Runs two at a time, because the tests wait half of their time.
fn two_at_a_time(runs: Vec<Run>) -> Result<Tally, Error> {
    let runs = Mutex::new(runs.into_iter());
    let next = || runs.lock().unwrap_or_else(PoisonError::into_inner).next();
    let some = || {
        let mut tally = Tally::default();
        while let Some(Run { title, mut pytest }) = next() {
            let ran = Tally::of_pytest_at_once(&title, &mut pytest);
            tally.add(ran.map_err(|error| error.to_string())?);
        }
        Ok::<_, String>(tally)
    };
    thread::scope(|scope| {
        let other = scope.spawn(some);
        let mut tally = some()?;
        tally.add(other.join().map_err(|_| "a run of tests panicked")??);
        Ok(tally)
    })
}

/// The package, and the environment of its tests.
struct Package<'a> {
    workspace: &'a Path,
    binary: &'a Path,
}

impl Package<'_> {
    /// Checks format, lints and types, and prepares what the tests need from the tools.
    fn check(&self, interpreter: &Interpreter) -> Result<Tally, Error> {
        let tools = Venv {
            interpreter,
            directory: &self.built("tools"),
            requirements: TOOLS,
        };
        tools.make()?;
        // Writes the metadata of an installation beside the sources, so that the entry points are
        // found.
        let mut metadata = Command::new(self.built("tools").join("bin/maturin"));
        metadata
            .args(["pep517", "write-dist-info", "--metadata-directory"])
            .arg(self.built("metadata"))
            .current_dir(self.directory());
        let mut tally = Tally::of_check(&mut metadata)?;
        for (tool, arguments) in [
            ("ruff", &["format", "--check"][..]),
            ("ruff", &["check"]),
            ("mypy", &[]),
        ] {
            let mut check = Command::new(self.built("tools").join("bin").join(tool));
            check.args(arguments).current_dir(self.directory());
            tally.add(Tally::of_check(&mut check)?);
        }
        Ok(tally)
    }

    /// Runs every test with one interpreter; slow tests run only with the newest.
    fn run_with(&self, guest: &TestEnv, is_newest: bool) -> Result<Run, Error> {
        let mut pytest = self.pytest(guest)?;
        pytest.env("SANDFORK_BINARY", self.binary);
        if !is_newest {
            pytest.args(["-m", "not stress"]);
        }
        let version = guest.interpreter.version_text();
        let title = format!("the Python package, CPython {version}:");
        Ok(Run { title, pytest })
    }

    /// Builds a wheel from cargo's existing output, and installs it in every supported way.
    fn test_wheel(&self, env: &TestEnv) -> Result<Tally, Error> {
        let wheels = self.built("wheel");
        if wheels.exists() {
            fs::remove_dir_all(&wheels)?;
        }
        let mut maturin = Command::new(self.built("tools").join("bin/maturin"));
        maturin
            .args(["build", "--quiet", "--profile", "dev", "--out"])
            .arg(&wheels);
        maturin.current_dir(self.directory());
        let built = Tally::of_check(&mut maturin)?;
        if !built.is_success() {
            return Ok(built);
        }
        let wheel = fs::read_dir(&wheels)?.next().ok_or("no wheel was built")?;
        let mut pytest = self.pytest(env)?;
        pytest
            .arg("tests/wheel")
            .env("SANDFORK_TEST_WHEEL", wheel?.path());
        let mut tally = Tally::of_pytest(&mut pytest)?;
        tally.add(built);
        Ok(tally)
    }

    fn pytest(&self, guest: &TestEnv) -> Result<Command, Error> {
        let python = clients::make(self.workspace, guest)?;
        let sources = clients::smolagents_source(self.workspace, &python)?;
        let mut pytest = Command::new(&python);
        pytest
            .args(["-m", "pytest", "-q", "-rs", "--color=no"])
            .args(["-p", "no:cacheprovider"])
            .current_dir(self.directory());
        let path = env::join_paths([self.directory().join("src"), self.built("metadata")])?;
        pytest
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("SANDFORK_SMOLAGENTS_SOURCE", sources);
        Ok(pytest)
    }

    fn directory(&self) -> PathBuf {
        self.workspace.join("python")
    }

    fn built(&self, name: &str) -> PathBuf {
        self.workspace.join("target/python").join(name)
    }
}

/// One interpreter for each minor version.
fn chosen(envs: &[TestEnv], versions: Versions) -> Vec<&TestEnv> {
    let each = one_of_each_version(envs);
    match (versions, each.as_slice()) {
        (Versions::Ends, [oldest, .., newest]) => vec![oldest, newest],
        _ => each,
    }
}

fn one_of_each_version(envs: &[TestEnv]) -> Vec<&TestEnv> {
    let mut chosen: Vec<&TestEnv> = Vec::new();
    for env in envs.iter().rev() {
        let minor = |env: &TestEnv| env.interpreter.version[..2].to_owned();
        if !chosen.iter().any(|other| minor(other) == minor(env)) {
            chosen.push(env);
        }
    }
    chosen.reverse();
    chosen
}
