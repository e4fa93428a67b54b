//! The tests that a guest runs, and how.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::job::{Program, User};
use crate::tally::Tally;
use crate::test::{Profile, test_program};
use crate::test_envs::TestEnv;
use crate::{Error, clients};

/// Kernel tests that depend little on the kernel and take very long, or need a fast machine.
const NOT_HERE: [&str; 5] = [
    "humaneval",
    "mixed_runs",
    "sessions::stress",
    "cgroups::processor_time_is_each_runs_own",
    "cgroups::what_a_heavy_run_counted",
];

/// Tests that depend on the kernel, the user and the cgroup.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
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
    /// All suites, in the order of the document.
    pub const ALL: [Self; 6] = [
        Self::Kernel,
        Self::SeccompKernel,
        Self::Escape,
        Self::LandlockLevel,
        Self::Faults,
        Self::Python,
    ];

    /// The name in `--test`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::SeccompKernel => "seccomp_kernel",
            Self::Escape => "escape",
            Self::LandlockLevel => "landlock_level",
            Self::Faults => "faults",
            Self::Python => "python",
        }
    }

    /// Whether a user can run it. The suite of faults traces all processes of a sandbox, and no ordinary
    /// user may trace the zygote. Root's run of it has supervisors of an ordinary user.
    pub fn is_for(self, user: User) -> bool {
        self != Self::Faults || user == User::Root
    }

    /// Counts the results in one line of its output.
    pub fn read(self, tally: &mut Tally, line: &str) {
        match self {
            Self::Python => tally.read_pytest(line),
            _ => tally.read(line),
        }
    }

    /// Builds the suite.
    pub fn prepare(
        self,
        workspace: &Path,
        python: &TestEnv,
        profile: Profile,
    ) -> Result<Prepared, Error> {
        Ok(Prepared {
            suite: self,
            executable: match self {
                Self::Python => clients::make(workspace, python)?,
                _ => test_program(workspace, self.name(), profile)?,
            },
        })
    }
}

impl FromStr for Suite {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|suite| suite.name() == text);
        known.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|suite| suite.name()).collect();
            format!("unknown test `{text}`: there are {}", names.join(", ")).into()
        })
    }
}

/// A suite that is ready to run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The suite.
    pub suite: Suite,
    /// The suite's own program, or the interpreter that runs it.
    pub executable: PathBuf,
}

impl Prepared {
    /// The environment of the host's side, if the suite runs in one.
    pub fn client(&self) -> Option<&Path> {
        let is_run_in_one = self.suite == Suite::Python;
        self.executable.ancestors().nth(2).filter(|_| is_run_in_one)
    }

    /// The program that the guest starts; `sandfork` is the command under test.
    pub fn program(&self, workspace: &Path, sandfork: &Path, arguments: &[String]) -> Program {
        let executable = self.executable.display().to_string();
        let mut words: Vec<String> = match self.suite {
            Suite::Python => {
                let package = workspace.join("python");
                let at = |path: &str| package.join(path).display().to_string();
                vec![
                    "env".to_owned(),
                    format!("PYTHONPATH={}", at("src")),
                    "PYTHONDONTWRITEBYTECODE=1".to_owned(),
                    format!("SANDFORK_BINARY={}", sandfork.display()),
                    executable,
                    "-mpytest".to_owned(),
                    "-qrs".to_owned(),
                    "--color=no".to_owned(),
                    "-pno:cacheprovider".to_owned(),
                    "-mnot stress".to_owned(),
                    format!("-c{}", at("pyproject.toml")),
                    at("tests/integration"),
                ]
            }
            Suite::Faults => vec![
                "env".to_owned(),
                "SANDFORK_FAULTS=sample".to_owned(),
                executable,
            ],
            _ => vec![executable],
        };
        words.extend(arguments.iter().cloned());
        if self.suite == Suite::Kernel {
            let skipped = NOT_HERE.iter().flat_map(|name| ["--skip", name]);
            words.extend(skipped.map(str::to_owned));
        }
        Program {
            name: self.suite.name().to_owned(),
            words,
        }
    }
}
