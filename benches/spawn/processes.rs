//! Whole processes: an interpreter, or a program that starts one, run to the end.

use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::contestant::{Contestant, Error};
use crate::subject::{Preload, Subject};

/// A command that is started and waited for.
pub struct Process {
    subject: Subject,
    command: Command,
}

/// A process with the resources that it needs while it takes turns.
pub struct Kept<K> {
    process: Process,
    _needs: K,
}

impl Process {
    /// A process that runs Python code, after it has shown that it does: an exit status of 0 alone
    /// does not prove that anything ran. `command` makes the command for some code.
    pub fn of_code(subject: Subject, command: impl Fn(&str) -> Command) -> Result<Self, Error> {
        let output = run(command("print(6 * 7)"))?;
        if output.stdout.trim_ascii() != b"42" {
            return Err(format!("it printed {:?} for 6 * 7", first_line(&output.stdout)).into());
        }
        Self::of(subject, command("pass"))
    }

    /// Fails if the command does: a command that cannot run is not compared.
    fn of(subject: Subject, mut command: Command) -> Result<Self, Error> {
        command.stdin(Stdio::null());
        run_ref(&mut command)?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { subject, command })
    }

    /// Keeps the resources that the command needs.
    pub fn keeping<K>(self, needs: K) -> Kept<K> {
        Kept {
            process: self,
            _needs: needs,
        }
    }
}

/// The output of a successful command, or the error it printed.
pub fn run(mut command: Command) -> Result<Output, Error> {
    run_ref(&mut command)
}

fn run_ref(command: &mut Command) -> Result<Output, Error> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NotInstalled.into(),
        _ => Error::from(error),
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let words = first_line(&output.stderr);
    Err(format!("{}: {words}", output.status).into())
}

fn first_line(bytes: &[u8]) -> String {
    let words = String::from_utf8_lossy(bytes);
    let line = words.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or("it says nothing").trim().to_owned()
}

/// The program does not exist.
#[derive(Debug)]
pub struct NotInstalled;

impl std::fmt::Display for NotInstalled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not installed")
    }
}

impl std::error::Error for NotInstalled {}

impl Contestant for Process {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error> {
        let start = Instant::now();
        let status = self.command.status()?;
        record(self.subject, start.elapsed());
        if status.success() {
            Ok(())
        } else {
            Err(format!("{}: {status}", self.subject).into())
        }
    }
}

impl<K> Contestant for Kept<K> {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error> {
        self.process.turn(record)
    }
}

/// `python3 -c pass`.
pub fn python(python: &Path) -> Result<Process, Error> {
    Process::of_code(Subject::Python(Preload::Nothing), |code| {
        let mut command = Command::new(python);
        command.args(["-c", code]);
        command
    })
}

/// `python3 -c` with only these imports.
pub fn python_with(python: &Path, preload: Preload) -> Result<Process, Error> {
    let Some(module) = preload.modules().last() else {
        return self::python(python);
    };
    let mut command = Command::new(python);
    command.arg("-c").arg(format!("import {module}"));
    Process::of(Subject::Python(preload), command)
}

/// `sandfork run`, with nothing warm.
pub fn cold_run(python: &Path) -> Result<Process, Error> {
    let interpreter = format!("python.interpreter={}", python.display());
    Process::of_code(Subject::ColdRun, |code| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        command.args(["run", "--set", &interpreter, "-c", code]);
        command
    })
}
