//! Runs the whole benchmark, with the environments for the comparisons.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{env, fs};

use serde_json::json;

use crate::interpreters::Interpreter;
use crate::test::cargo;
use crate::venv::Venv;
use crate::{Error, test_envs, workspace};

/// Programs to run inside and outside a sandbox. The dependencies with which it starts processes
/// are left out: the benchmark runs the programs itself.
const PYPERFORMANCE: &str = "pyperformance==1.14.0\n";

/// A sandbox from PyPI, installed in the usual way.
const SANDLOCK: &str = "sandlock==0.9.0\n";

/// The interpreter that most users have: the speed of a self-built one depends on its build.
const OF_THE_SYSTEM: &str = "/usr/bin/python3";

/// Makes the environments, builds, and measures; `arguments` are passed to the benchmark.
pub fn run(arguments: impl Iterator<Item = String>) -> Result<ExitCode, Error> {
    let asked = Asked::of(arguments)?;
    let workspace = workspace();
    let python = asked.python()?;
    let interpreter = Interpreter::ask(&python)
        .ok_or_else(|| format!("{} is no CPython that can be measured", python.display()))?;
    write_environments(&workspace, &interpreter)?;
    let mut bench = cargo(&workspace);
    bench
        .args(["bench", "--bench", "spawn", "--"])
        .args(&asked.rest)
        .arg("--python")
        .arg(&python);
    let status = bench.status()?;
    Ok(if status.success() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The arguments that concern this command, and the rest.
#[derive(Debug, Eq, PartialEq)]
struct Asked {
    python: Option<PathBuf>,
    /// The arguments for the benchmark, which runs all of its parts unless one is named.
    rest: Vec<String>,
}

impl Asked {
    fn of(mut arguments: impl Iterator<Item = String>) -> Result<Self, Error> {
        let mut asked = Self {
            python: None,
            rest: Vec::new(),
        };
        while let Some(argument) = arguments.next() {
            if argument == "--python" {
                let path = arguments.next().ok_or("--python needs a path")?;
                asked.python = Some(path.into());
            } else {
                asked.rest.push(argument);
            }
        }
        if asked.rest.iter().all(|argument| argument.starts_with('-')) {
            asked.rest.push("all".to_owned());
        }
        Ok(asked)
    }

    /// The named interpreter, or the system's, or the first on `PATH`.
    fn python(&self) -> Result<PathBuf, Error> {
        if let Some(named) = &self.python {
            return Ok(named.clone());
        }
        let search_path = env::var_os("PATH").unwrap_or_default();
        let on_path = env::split_paths(&search_path).map(|directory| directory.join("python3"));
        let found = std::iter::once(PathBuf::from(OF_THE_SYSTEM))
            .chain(on_path)
            .find(|candidate| Interpreter::ask(candidate).is_some_and(|it| it.is_supported()));
        found.ok_or_else(|| "no CPython 3.9 or later was found: install one".into())
    }
}

/// Makes the missing environments and lists them for the benchmark. Environments that cannot be
/// made are left out: the rest of the comparison is still valid.
fn write_environments(workspace: &Path, interpreter: &Interpreter) -> Result<(), Error> {
    let made = |what: &str, made: Result<PathBuf, Error>| match made {
        Ok(python) => Some(python),
        Err(error) => {
            eprintln!("left out: {what}: {error}");
            None
        }
    };
    let modules = test_envs::make_for(workspace, interpreter);
    let modules = modules.map(|env| env.directory.join("bin/python"));
    let environments = json!({
        "interpreters": [{
            "executable": interpreter.executable,
            "modules": made("numpy and pandas", modules),
            "pyperformance": made("pyperformance", venv(workspace, interpreter, PYPERFORMANCE)),
            "sandlock": made("sandlock", venv(workspace, interpreter, SANDLOCK)),
        }],
    });
    let directory = workspace.join("target/bench");
    fs::create_dir_all(&directory)?;
    let path = directory.join("environments.json");
    Ok(fs::write(path, format!("{environments:#}\n"))?)
}

fn venv(workspace: &Path, interpreter: &Interpreter, requirement: &str) -> Result<PathBuf, Error> {
    let root = test_envs::place(&workspace.join("target/bench-envs"), "bench-envs")?;
    fs::create_dir_all(&root)?;
    let (package, _) = requirement.split_once('=').unwrap_or((requirement, ""));
    let directory = root.join(format!("{package}-{}", interpreter.version_text()));
    let venv = Venv {
        interpreter,
        directory: &directory,
        requirements: requirement,
    };
    venv.make()?;
    Ok(venv.python())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(arguments: &[&str]) -> Result<Asked, Error> {
        Asked::of(arguments.iter().map(|argument| (*argument).to_owned()))
    }

    #[test]
    fn all_parts_unless_one_is_named() {
        let all = asked(&["--quick"]).expect("it can be read");
        assert_eq!(all.rest, ["--quick", "all"]);
        let one = asked(&["memory", "--quick"]).expect("it can be read");
        assert_eq!(one.rest, ["memory", "--quick"]);
    }

    #[test]
    fn the_interpreter_is_known_here_too() {
        let asked_for = asked(&["--python", "/a/b"]).expect("it can be read");
        assert_eq!(asked_for.python, Some(PathBuf::from("/a/b")));
        assert_eq!(asked_for.rest, ["all"]);
        assert!(asked(&["--python"]).is_err());
    }
}
