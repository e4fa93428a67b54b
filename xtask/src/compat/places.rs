//! Where the software runs: outside, or in `sandfork run`, with or without its package preloaded, or `sandfork exec`.

use std::fmt;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{Endings, Found};
use crate::workspace;

/// The time limit of one item in seconds, generous for a busy machine. suite.py ends a module with a hanging test long
/// before that.
const PATIENCE: u32 = 900;

/// The settings that real software needs. Keys that permit more are off by default.
const ROOM: [&str; 13] = [
    "network.mode=loopback",
    "filesystem.work_exec=true",
    "filesystem.work_size=1GiB",
    "filesystem.work_inodes=100000",
    "filesystem.tmp_size=512MiB",
    "filesystem.tmp_inodes=100000",
    "limits.cores=2",
    "limits.cpu=600s",
    "limits.file_size=8GiB",
    "limits.memory=2GiB",
    "limits.open_files=1024",
    "limits.output=64MiB",
    "limits.pids=512",
];

/// A place in which software runs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// An ordinary user with its own loopback interface.
    Outside,
    /// `sandfork run`.
    Run,
    /// `sandfork run` with the package in `python.preload`.
    Preloaded,
    /// `sandfork exec`.
    Exec,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Outside => "outside",
            Self::Run => "by `run`",
            Self::Preloaded => "preloaded",
            Self::Exec => "by `exec`",
        })
    }
}

/// The command under test, and the scripts of this module.
pub struct Places {
    sandfork: PathBuf,
    scripts: PathBuf,
}

impl Places {
    /// Takes the path of the command under test.
    pub fn new(sandfork: PathBuf) -> Result<Self> {
        let scripts = workspace().join("xtask/src/compat");
        let sandfork = fs::canonicalize(sandfork)?;
        Ok(Self { sandfork, scripts })
    }

    /// Runs a module of CPython's suite, or some of its tests. Returns the result of each test.
    pub fn suite(
        &self,
        place: Place,
        python: &Path,
        module: &str,
        only: &[String],
    ) -> Result<Found> {
        let here = tempfile::tempdir()?;
        let script = self.scripts.join("suite.py");
        let names = here.path().join("names");
        fs::write(&names, only.join("\n"))?;
        let mut command = match place {
            Place::Outside => self.outside(&here, python),
            Place::Run | Place::Preloaded => self.inside("run", python, &[]),
            Place::Exec => {
                let mut exec = self.inside("exec", python, &[]);
                exec.arg("--in").arg(&script);
                exec
            }
        };
        if place != Place::Outside {
            command.arg("--in").arg(&names);
        }
        match place {
            Place::Exec => command.arg("--").arg(python).arg("suite.py"),
            _ => command.arg(&script),
        };
        command.arg(module).current_dir(here.path());
        if !only.is_empty() {
            command.arg("names");
        }
        let answer = output_of(&mut command)?;
        let mut found = Found {
            endings: suite_endings(&answer.stdout),
            broken: None,
        };
        if found.endings.remove("").is_none() {
            found.broken = Some(answer.why());
        }
        Ok(found)
    }

    /// Runs the workload of a package, such as `numpy`, or `pillow (PIL)` with its module's name.
    pub fn package(&self, place: Place, python: &Path, name: &str, code: &str) -> Result<Found> {
        let here = tempfile::tempdir()?;
        let module = name
            .split_once(" (")
            .map_or(name, |(_, module)| module.trim_end_matches(')'));
        let preload = format!("python.preload={module}");
        let mut command = match place {
            Place::Outside => self.outside(&here, python),
            Place::Preloaded => self.inside("run", python, &[&preload]),
            Place::Run | Place::Exec => self.inside("run", python, &[]),
        };
        let script = here.path().join("workload.py");
        fs::write(&script, code)?;
        one(name, command.arg(&script).current_dir(here.path()))
    }

    /// Runs a program's script.
    pub fn program(&self, place: Place, name: &str, script: &str) -> Result<Found> {
        let here = tempfile::tempdir()?;
        let shell = Path::new("/bin/sh");
        let mut command = if place == Place::Outside {
            self.outside(&here, shell)
        } else {
            let mut exec = self.inside("exec", Path::new("/usr/bin/python3"), &[]);
            exec.arg("--").arg(shell);
            exec
        };
        one(name, command.args(["-ec", script]).current_dir(here.path()))
    }

    fn outside(&self, home: &TempDir, program: &Path) -> Command {
        let mut command = Command::new("timeout");
        command
            .args(["--kill-after=5", &PATIENCE.to_string(), "python3"])
            .arg(self.scripts.join("outside.py"))
            .arg(program)
            // As in the environment of a policy.
            .env_clear()
            .envs([("LANG", "C.UTF-8"), ("TZ", "UTC")])
            .env("HOME", home.path())
            .env("TMPDIR", home.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command
    }

    fn inside(&self, verb: &str, python: &Path, settings: &[&str]) -> Command {
        let mut command = Command::new(&self.sandfork);
        command.args([verb, "--policy", "standard"]);
        for setting in ROOM.iter().chain(settings) {
            command.args(["--set", setting]);
        }
        // Tests execute files that they make there; the policy permits that only in the work directory.
        command.args(["--set", "env.set.TMPDIR=\"/work\""]);
        command.arg("--set").arg(format!("limits.wall={PATIENCE}s"));
        let interpreter = format!("python.interpreter={:?}", python.display().to_string());
        command.args(["--set", &interpreter]);
        command
    }
}

/// A command's output and exit code.
struct CommandOutput {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl CommandOutput {
    /// Returns the last line of stderr of a command that failed.
    fn why(&self) -> String {
        let lines = self.stderr.lines().rev();
        let last = lines.map(str::trim).find(|line| !line.is_empty());
        match (self.code, last) {
            // The exit code of `timeout` and of Sandfork.
            (Some(124), _) => "it took too long".to_owned(),
            (_, Some(last)) => last.chars().take(200).collect(),
            (code, None) => format!("it ended with {code:?} and no word"),
        }
    }
}

/// Runs a command to its end. Its output goes to files, so that a process that it leaves behind does not delay this
/// one. Such processes are killed.
fn output_of(command: &mut Command) -> Result<CommandOutput> {
    let (mut stdout, mut stderr) = (tempfile::tempfile()?, tempfile::tempfile()?);
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(stdout.try_clone()?)
        .stderr(stderr.try_clone()?)
        .spawn()
        .with_context(|| format!("could not run {}", command.get_program().display()))?;
    let status = child.wait()?;
    _ = killpg(Pid::from_raw(child.id().try_into()?), Signal::SIGKILL);
    Ok(CommandOutput {
        code: status.code(),
        stdout: text(&mut stdout)?,
        stderr: text(&mut stderr)?,
    })
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Parses the lines of suite.py into the result of each test. A failure outweighs other results of the same test, whose
/// subtests can end in several ways.
fn suite_endings(lines: &str) -> Endings {
    let mut endings = Endings::new();
    for line in lines.lines() {
        let Ok((test, how)) = serde_json::from_str::<(String, String)>(line) else {
            continue;
        };
        let known = endings.entry(test).or_insert_with(|| how.clone());
        if known == "began" || how.starts_with("failed") {
            *known = how;
        }
    }
    endings
}

/// Runs an item that is a single test: it passes with exit code 0.
fn one(name: &str, command: &mut Command) -> Result<Found> {
    let output = output_of(command)?;
    let how = match output.code {
        Some(0) => "passed".to_owned(),
        _ => format!("failed: {}", output.why()),
    };
    Ok(Found {
        endings: Endings::from([(name.to_owned(), how)]),
        broken: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_result_of_a_test_wins() {
        let lines = r#"
["a", "began"]
["a", "failed: in a part"]
["a", "skipped: in another"]
["b", "began"]
["b", "passed"]
a print
["c", "began"]
"#;
        let endings = suite_endings(lines);
        let expected = [("a", "failed: in a part"), ("b", "passed"), ("c", "began")];
        let expected = expected.map(|(test, how)| (test.to_owned(), how.to_owned()));
        assert_eq!(endings, Endings::from(expected));
    }
}
