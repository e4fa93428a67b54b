//! Runs the tests of the Python package: most with several interpreters, the rest once.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use xshell::{Shell, cmd};

use crate::at_once::two_at_a_time;
use crate::interpreters::{Versions, path_without_shims};
use crate::tally::Tally;
use crate::test_envs::{self, TestEnv, TestEnvs};
use crate::{venv, workspace};

const TOOLS: &str = include_str!("../python-tools.txt");

/// The tests in two parts of about the same duration, because two parts run at once.
const PARTS: [&[&str]; 2] = [
    &["tests/frameworks", "tests/integration", "tests/server"],
    &[
        "tests",
        "--ignore=tests/frameworks",
        "--ignore=tests/integration",
        "--ignore=tests/server",
    ],
];

/// Makes the environments that [`test()`] needs, because downloads can overlap with a build.
pub fn prepare(envs: &TestEnvs, versions: Versions) -> Result<()> {
    Package::prepare(newest(envs)?)?;
    for env in chosen(&envs.envs, versions) {
        test_envs::make_client(&env.interpreter)?;
    }
    Ok(())
}

/// Runs the tests against this `sandfork` program.
pub fn test(envs: &TestEnvs, binary: &Path, versions: Versions) -> Result<Tally> {
    let newest = newest(envs)?;
    let package = Package::prepare(newest)?;
    let mut tally = package.check()?;
    let mut parts: Vec<Work> = Vec::new();
    // The newest interpreter first, which has the most tests.
    let runs = chosen(&envs.envs, versions).into_iter().rev();
    for (env, part) in runs.flat_map(|env| PARTS.map(|part| (env, part))) {
        // Slow tests run only with the newest interpreter, and whole suites of other projects only before a release.
        let slow = (env.directory != newest.directory).then_some("not stress");
        let foreign = (versions == Versions::Ends).then_some("not foreign");
        let chosen: Vec<_> = slow.into_iter().chain(foreign).collect();
        let mut pytest = package.pytest(env)?;
        pytest
            .args(part)
            .args(["-m", &chosen.join(" and ")])
            .env("SANDFORK_BINARY", binary);
        let version = env.interpreter.version_text();
        let title = format!("the Python package, CPython {version}, {}:", part[0]);
        parts.push(Box::new(move || {
            Tally::of_at_once(&title, pytest, Tally::read_pytest)
        }));
    }
    // Mostly a build, while the other parts wait for half of their time.
    parts.insert(0, Box::new(move || package.test_wheel(newest)));
    for of_one in two_at_a_time(parts, |part| part())? {
        tally.add(of_one);
    }
    Ok(tally)
}

fn newest(envs: &TestEnvs) -> Result<&TestEnv> {
    let newest = envs.envs.iter().max_by_key(|env| env.interpreter.version);
    newest.context("no interpreter")
}

/// A part of the tests.
type Work<'a> = Box<dyn FnOnce() -> Result<Tally> + Send + 'a>;

/// The Python package, and what its tests need.
struct Package {
    sh: Shell,
    /// The directory with the tools' programs.
    tools: PathBuf,
    /// The directory for what is built for the tests.
    built: PathBuf,
}

impl Package {
    fn prepare(newest: &TestEnv) -> Result<Self> {
        let sh = Shell::new()?;
        sh.change_dir(workspace().join("python"));
        sh.set_var("PATH", path_without_shims()?);
        let built = workspace().join("target/python");
        venv::make(&newest.interpreter, &built.join("tools"), TOOLS)?;
        let tools = built.join("tools/bin");
        Ok(Self { sh, tools, built })
    }

    /// Checks format, lints and types, and writes the metadata of an installation next to the sources,
    /// so that the entry points are found.
    fn check(&self) -> Result<Tally> {
        let Self { sh, tools, built } = self;
        let mut tally = Tally::default();
        for check in [
            cmd!(
                sh,
                "{tools}/maturin pep517 write-dist-info --metadata-directory {built}/metadata"
            ),
            cmd!(sh, "{tools}/ruff format --check"),
            cmd!(sh, "{tools}/ruff check"),
            cmd!(sh, "{tools}/mypy"),
        ] {
            tally.add(Tally::of_check(check)?);
        }
        Ok(tally)
    }

    /// Builds a wheel from cargo's existing output, and installs it in every supported way.
    fn test_wheel(&self, env: &TestEnv) -> Result<Tally> {
        let Self { sh, tools, built } = self;
        let wheels = built.join("wheel");
        sh.remove_path(&wheels)?;
        let build = cmd!(
            sh,
            "{tools}/maturin build --quiet --profile dev --out {wheels}"
        );
        let mut tally = Tally::of_check(build)?;
        if tally.is_success() {
            let wheel = sh.read_dir(&wheels)?.pop().context("no wheel was built")?;
            let mut pytest = self.pytest(env)?;
            pytest.arg("tests/wheel").env("SANDFORK_TEST_WHEEL", wheel);
            let title = "the Python package, as a wheel:";
            tally.add(Tally::of_at_once(title, pytest, Tally::read_pytest)?);
        }
        Ok(tally)
    }

    fn pytest(&self, guest: &TestEnv) -> Result<Command> {
        let python = test_envs::make_client(&guest.interpreter)?;
        let downloads = test_envs::downloads(&python)?;
        let path: OsString =
            env::join_paths([workspace().join("python/src"), self.built.join("metadata")])?;
        let pytest = cmd!(
            self.sh,
            "{python} -m pytest -q -rs --color=no -p no:cacheprovider"
        )
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SANDFORK_TEST_DOWNLOADS", downloads);
        Ok(pytest.into())
    }
}

/// Selects one interpreter for each minor version.
fn chosen(envs: &[TestEnv], versions: Versions) -> Vec<&TestEnv> {
    let minor = |env: &TestEnv| env.interpreter.version[1];
    let mut each: Vec<&TestEnv> = envs.iter().rev().collect();
    each.dedup_by_key(|env| minor(env));
    each.reverse();
    match (versions, each.as_slice()) {
        (Versions::Ends, [oldest, .., newest]) => vec![oldest, newest],
        _ => each,
    }
}
