//! Runs HumanEval through `sandfork map`, with the environment that has its programs.

use std::process::{Command, ExitCode};

use crate::test::cargo;
use crate::{Error, test_envs, workspace};

/// Runs the benchmark with these additional arguments.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<ExitCode, Error> {
    let workspace = workspace();
    let envs = test_envs::make(&workspace)?.envs;
    // Uses the interpreter behind `python3`, as a user would, so that the numbers match a user's.
    let usual = Command::new("python3")
        .args(["-c", "import platform; print(platform.python_version())"])
        .output()?;
    let usual = String::from_utf8(usual.stdout)?;
    let is_usual = |env: &&test_envs::TestEnv| env.interpreter.version_text() == usual.trim();
    let env = envs.iter().find(is_usual).or(envs.last());
    let env = env.ok_or("there is no test environment")?;
    let mut bench = cargo(&workspace);
    bench
        .args(["bench", "--bench", "map", "--", "--python"])
        .arg(env.directory.join("bin/python"))
        .args(arguments);
    let status = bench.status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}
