//! The test suites that a guest runs.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::ValueEnum;

use super::job::{Program, User};
use super::name;
use crate::tally::{Read, Tally};
use crate::test::test_program;
use crate::test_envs::{TestEnv, make_client};

/// Kernel tests that hardly depend on the kernel and take very long, or need a fast machine.
const NOT_HERE: [&str; 5] = [
    "humaneval",
    "mixed_runs",
    "sessions::stress",
    "cgroups::cpu_time_is_counted_per_run",
    "cgroups::cgroup_of_a_heavy_run_is_not_reused",
];

/// Test suites that depend on the kernel, the user and the cgroup, in the order of the document.
#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Suite {
    /// `tests/kernel`.
    Kernel,
    /// `tests/seccomp_kernel`.
    SeccompKernel,
    /// `tests/escape`.
    Escape,
    /// `tests/landlock_level`.
    LandlockLevel,
    /// `tests/faults`: a sample of each kind.
    Faults,
    /// `python/tests/integration`: the Python package, with the real supervisor.
    Python,
}

impl Suite {
    /// Returns the suite of a program in the guest, if it is one.
    pub fn of(program: &str) -> Option<Self> {
        Self::from_str(program, false).ok()
    }

    /// Returns the parser of a line of its output.
    pub fn reader(self) -> Read {
        match self {
            Self::Python => Tally::read_pytest,
            _ => Tally::read,
        }
    }

    /// Returns whether a user can run it. The faults suite traces all processes of a sandbox, and no ordinary
    /// user may trace the zygote. As root, the suite also tests supervisors of an ordinary user.
    pub fn is_for(self, user: User) -> bool {
        self != Self::Faults || user == User::Root
    }

    /// Builds the suite.
    pub fn prepare(self, python: &TestEnv, profile: &str) -> Result<Prepared> {
        let executable = match self {
            Self::Python => make_client(&python.interpreter)?,
            _ => test_program(&name(&self), profile)?,
        };
        Ok(Prepared {
            suite: self,
            executable,
        })
    }
}

/// A suite that is ready to run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The suite.
    pub suite: Suite,
    /// The test program, or the interpreter that runs the suite.
    pub executable: PathBuf,
}

impl Prepared {
    /// Returns the host environment, if the suite runs in one.
    pub fn client(&self) -> Option<&Path> {
        let is_run_in_one = self.suite == Suite::Python;
        self.executable.ancestors().nth(2).filter(|_| is_run_in_one)
    }

    /// Returns the program that the guest starts; `sandfork` is the command under test.
    pub fn program(&self, workspace: &Path, sandfork: &Path, arguments: &[String]) -> Program {
        let executable = self.executable.display().to_string();
        let mut words = match self.suite {
            Suite::Python => {
                let package = workspace.join("python");
                let package = package.display();
                vec![
                    "env".to_owned(),
                    format!("PYTHONPATH={package}/src"),
                    "PYTHONDONTWRITEBYTECODE=1".to_owned(),
                    format!("SANDFORK_BINARY={}", sandfork.display()),
                    executable,
                    "-mpytest".to_owned(),
                    "-qrs".to_owned(),
                    "--color=no".to_owned(),
                    "-pno:cacheprovider".to_owned(),
                    "-mnot stress".to_owned(),
                    format!("-c{package}/pyproject.toml"),
                    // Ray gives up on a cluster whose processes take more than 30 seconds to start.
                    format!("--ignore={package}/tests/integration/test_ray.py"),
                    format!("{package}/tests/integration"),
                ]
            }
            Suite::Faults => ["env", "SANDFORK_FAULTS=sample", &executable]
                .map(str::to_owned)
                .into(),
            _ => vec![executable],
        };
        words.extend(arguments.iter().cloned());
        if self.suite == Suite::Kernel {
            let skipped = NOT_HERE.iter().flat_map(|name| ["--skip", name]);
            words.extend(skipped.map(str::to_owned));
        }
        Program {
            name: name(&self.suite),
            words,
        }
    }
}
