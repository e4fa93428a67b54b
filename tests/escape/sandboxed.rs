//! Runs an attempt in the sandbox.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::BAIT_STDIN;
use crate::account::User;
use crate::capture::{Captured, capture};
use crate::one_sandbox::{AS_A_PROGRAM, AS_TWO_TENANTS, IN_A_COPY, IN_ONE_SANDBOX, PREVIOUS};
use crate::probe::{Clock, OpenMode, Probe, Through};
use crate::verdict::{Observed, Verdict, judge};
use crate::world::{MODULES, Party, RunDirectory, World, value_of};

/// A command prefix for the product's command line: a program that runs it without one of its layers.
const THROUGH: &str = "SANDFORK_ESCAPE_THROUGH";

/// The overrides that make up the test profile.
const PROFILE: [&str; 10] = [
    "limits.memory=256MiB",
    "limits.pids=64",
    "limits.open_files=256",
    "limits.output=1MiB",
    "limits.cores=1.0",
    "filesystem.work_size=64MiB",
    "filesystem.work_inodes=4096",
    "filesystem.tmp_size=64MiB",
    "filesystem.tmp_inodes=4096",
    "assurance.require=standard",
];

/// The number of copies: a fork, and a session after a rollback and a pause.
const COPIES: usize = 2;

/// The limits that `TIME_LIMIT` and `CPU_LIMIT` tell the probe.
const TIGHT: [&str; 2] = ["limits.wall=1s", "limits.cpu=1s"];
/// More than any attempt needs, even on a busy emulated machine.
const PLENTY: [&str; 2] = ["limits.wall=10m", "limits.cpu=10m"];

/// The part of the output of `--json` that the tests check.
#[derive(Deserialize)]
pub struct Outcome {
    pub status: String,
    pub stdout: String,
    pub stderr: String,
    enforced: Enforced,
}

#[derive(Deserialize)]
struct Enforced {
    level: String,
}

/// The outcome of one run, and the launcher's stderr.
struct Run {
    outcome: Outcome,
    stderr: String,
}

/// The kind of worker that runs the attempt.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// A separate worker, through the interface that the probe names.
    Worker,
    /// A fork of a session, and a session after a rollback and a pause.
    Copy,
    /// A program of a session, beside its cells.
    Program,
}

pub fn run(
    world: &World,
    probe: &Probe,
    policy: &str,
    user: User,
    place: Place,
) -> Result<Verdict, String> {
    let party = world.party(user).ok_or("the harness is not root")?;
    let directory = world.run_directory(&party.account)?;
    let attempt = Attempt {
        world,
        probe,
        policy,
        party,
        directory: &directory,
    };
    let runs = match probe.header.through {
        _ if place == Place::Copy => attempt.in_copies()?,
        _ if place == Place::Program => attempt.in_one_sandbox(AS_A_PROGRAM)?,
        Through::CommandLine => attempt.through_command_line()?,
        Through::OneSandbox => attempt.in_one_sandbox(IN_ONE_SANDBOX)?,
        Through::TwoTenants => attempt.in_one_sandbox(AS_TWO_TENANTS)?,
    };
    for Run { outcome, stderr } in &runs {
        // Includes what the launcher let through to its own stderr.
        let output = format!("{}\n{}\n{stderr}", outcome.stdout, outcome.stderr);
        let observed = Observed {
            status: &outcome.status,
            output: &output,
        };
        let verdict = judge(&probe.header.expect, policy, &observed);
        if verdict != Verdict::Contained {
            return Ok(verdict);
        }
        if let Some(check) = probe.header.host_check
            && let Err(broken) = attempt.check_host(check, outcome)
        {
            return Ok(Verdict::Escaped(format!("host: {broken}")));
        }
    }
    Ok(Verdict::Contained)
}

pub struct Attempt<'a> {
    pub world: &'a World,
    pub probe: &'a Probe,
    pub policy: &'a str,
    pub party: &'a Party,
    pub directory: &'a RunDirectory,
}

impl Attempt<'_> {
    fn through_command_line(&self) -> Result<Vec<Run>, String> {
        let mut runs: Vec<Run> = Vec::new();
        for number in 1..=self.probe.header.runs {
            let previous = runs.last().map(|run| value_of(&run.outcome.stdout));
            let program = self.program(number, &previous.unwrap_or_default())?;
            let captured = self.launch(&self.world.sandfork, &[], &[program])?;
            let outcome = parse(&captured.stdout, &captured)?;
            runs.push(Run {
                outcome,
                stderr: captured.stderr,
            });
        }
        Ok(runs)
    }

    fn in_one_sandbox(&self, how: &str) -> Result<Vec<Run>, String> {
        let mut programs = vec![self.program(1, "")?];
        for number in 2..=self.probe.header.runs {
            programs.push(self.program(number, PREVIOUS)?);
        }
        self.through_library(how, &programs, programs.len())
    }

    fn in_copies(&self) -> Result<Vec<Run>, String> {
        self.through_library(IN_A_COPY, &[self.program(1, "")?], COPIES)
    }

    fn through_library(
        &self,
        how: &str,
        programs: &[PathBuf],
        outcomes: usize,
    ) -> Result<Vec<Run>, String> {
        let captured = self.launch(&self.world.escape, &[how], programs)?;
        let lines: Vec<&str> = captured.stdout.lines().collect();
        if lines.len() != outcomes {
            return Err(no_outcome(&format!("{} outcomes", lines.len()), &captured));
        }
        let run = |line| {
            Ok(Run {
                outcome: parse(line, &captured)?,
                stderr: captured.stderr.clone(),
            })
        };
        lines.into_iter().map(run).collect()
    }

    pub fn program(&self, number: usize, previous: &str) -> Result<PathBuf, String> {
        self.directory
            .program(self.probe, self.party, number, previous)
    }

    /// Runs the programs with `--json`.
    pub fn launch(
        &self,
        launcher: &Path,
        options: &[&str],
        programs: &[PathBuf],
    ) -> Result<Captured, String> {
        let mut words = Vec::new();
        if self.probe.header.open_mode == OpenMode::Pty {
            words.push(self.party.account.python.clone().into_os_string());
            words.push(self.world.script("pty.py").into_os_string());
        }
        let through = std::env::var(THROUGH).unwrap_or_default();
        words.extend(through.split_whitespace().map(OsString::from));
        words.push(launcher.as_os_str().to_owned());
        words.extend(options.iter().map(OsString::from));
        words.extend(["run", "--json"].map(OsString::from));
        self.start(words, programs)
    }

    /// Starts a launcher with these first arguments, under the policy and the test profile.
    pub fn start(
        &self,
        mut arguments: Vec<OsString>,
        programs: &[PathBuf],
    ) -> Result<Captured, String> {
        arguments.extend(["--policy", self.policy].map(OsString::from));
        let own = self.probe.header.set.iter().map(|set| self.fill_in(set));
        let clock = match self.probe.header.clock {
            Clock::Tight => TIGHT,
            Clock::Plenty => PLENTY,
        };
        let profile = PROFILE.into_iter().chain(clock).map(str::to_owned);
        for assignment in profile.chain(own) {
            arguments.extend(["--set", &assignment].map(OsString::from));
        }
        let mut interpreter = OsString::from("python.interpreter=");
        interpreter.push(&self.party.account.python);
        arguments.extend([OsString::from("--set"), interpreter]);
        arguments.extend(
            programs
                .iter()
                .map(|program| program.as_os_str().to_owned()),
        );
        let mut command = self
            .party
            .account
            .command(self.probe.header.launch, &arguments);
        command.current_dir(&self.directory.work);
        capture(command, BAIT_STDIN)
    }

    /// Replaces the placeholders for this machine's paths in an override.
    fn fill_in(&self, set: &str) -> String {
        let modules = self.world.script(MODULES).display().to_string();
        let variables = &self.party.bait.variables;
        set.replace("{SHARED}", &variables["SHARED"])
            .replace("{WRITABLE}", &variables["WRITABLE"])
            .replace("{MODULES}", &modules)
    }
}

pub fn parse(json: &str, captured: &Captured) -> Result<Outcome, String> {
    let outcome: Outcome =
        serde_json::from_str(json).map_err(|error| no_outcome(&error.to_string(), captured))?;
    if !["standard", "full"].contains(&outcome.enforced.level.as_str()) {
        return Err(format!("ran with level {} only", outcome.enforced.level));
    }
    Ok(outcome)
}

fn no_outcome(cause: &str, captured: &Captured) -> String {
    let stderr = captured.stderr.trim();
    format!(
        "no outcome, exit code {}: {cause}: {stderr:?}",
        captured.code()
    )
}
