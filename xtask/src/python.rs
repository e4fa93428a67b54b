//! The tests of the Python package: with each interpreter, and once what is the same for all.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::Error;
use crate::again::look_again;
use crate::clients;
use crate::interpreters::Interpreter;
use crate::tally::Tally;
use crate::test_envs::{TestEnv, TestEnvs};
use crate::venv::Venv;

const TOOLS: &str = include_str!("../python-tools.txt");

/// Runs them against this `sandfork` program.
pub fn test(workspace: &Path, envs: &TestEnvs, binary: &Path) -> Result<Tally, Error> {
    let package = Package { workspace, binary };
    let newest = envs.envs.iter().max_by_key(|env| env.interpreter.version);
    let newest = newest.ok_or("no interpreter")?;
    let mut tally = package.check(&newest.interpreter)?;
    let runs = one_of_each_version(&envs.envs)
        .into_iter()
        .map(|env| {
            let mut pytest = package.pytest(env)?;
            if env.interpreter != newest.interpreter {
                // What takes long is tested with the newest only.
                pytest.arguments = &["-m", "not stress"];
            }
            Ok(pytest)
        })
        .collect::<Result<Vec<_>, Error>>()?;
    tally.add(two_at_a_time(&runs)?);
    tally.add(package.test_wheel(newest)?);
    Ok(tally)
}

/// Half of their time they wait for something.
fn two_at_a_time(runs: &[Pytest]) -> Result<Tally, Error> {
    let next = AtomicUsize::new(0);
    let some = || {
        let mut tally = Tally::default();
        while let Some(pytest) = runs.get(next.fetch_add(1, Ordering::Relaxed)) {
            tally.add(pytest.run_all().map_err(|error| error.to_string())?);
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

/// The package, and what it is tested with.
struct Package<'a> {
    workspace: &'a Path,
    binary: &'a Path,
}

impl Package<'_> {
    /// Format, lints and types; and what the tests need of the tools.
    fn check(&self, interpreter: &Interpreter) -> Result<Tally, Error> {
        let tools = Venv {
            interpreter,
            directory: &self.built("tools"),
            requirements: TOOLS,
        };
        tools.make()?;
        // As if it were installed: its entry points are found beside its sources.
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

    /// Builds a wheel, out of what cargo has built already, and installs it in every way.
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
        let mut pytest = self.pytest(env)?.command();
        pytest
            .arg("tests/wheel")
            .env("SANDFORK_TEST_WHEEL", wheel?.path());
        let mut tally = Tally::of_pytest(&mut pytest)?;
        tally.add(built);
        Ok(tally)
    }

    fn pytest(&self, guest: &TestEnv) -> Result<Pytest, Error> {
        let python = clients::make(self.workspace, guest)?;
        Ok(Pytest {
            version: guest.interpreter.version_text(),
            smolagents: clients::smolagents_source(self.workspace, &python)?,
            python,
            directory: self.directory(),
            path: env::join_paths([self.directory().join("src"), self.built("metadata")])?,
            binary: self.binary.to_owned(),
            arguments: &[],
        })
    }

    fn directory(&self) -> PathBuf {
        self.workspace.join("python")
    }

    fn built(&self, name: &str) -> PathBuf {
        self.workspace.join("target/python").join(name)
    }
}

/// The package's tests, for one interpreter.
struct Pytest {
    version: String,
    python: PathBuf,
    directory: PathBuf,
    path: OsString,
    smolagents: PathBuf,
    binary: PathBuf,
    arguments: &'static [&'static str],
}

impl Pytest {
    /// Those that its arguments choose.
    fn run_all(&self) -> Result<Tally, Error> {
        let title = format!("the Python package, CPython {}:", self.version);
        let chosen = || {
            let mut chosen = self.command();
            chosen.env("SANDFORK_BINARY", &self.binary);
            chosen
        };
        let all = Tally::of_pytest_at_once(&title, chosen().args(self.arguments))?;
        let one = |name: &str| {
            let mut one = chosen();
            one.arg(name);
            Ok(one)
        };
        look_again(all, one, Tally::of_pytest)
    }

    fn command(&self) -> Command {
        let mut pytest = Command::new(&self.python);
        pytest
            .args(["-m", "pytest", "-q", "-rfs", "--color=no"])
            .args(["-p", "no:cacheprovider"])
            .current_dir(&self.directory)
            .env("PYTHONPATH", &self.path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("SANDFORK_SMOLAGENTS_SOURCE", &self.smolagents);
        pytest
    }
}

/// One interpreter for each minor version.
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
