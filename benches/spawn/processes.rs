//! Whole processes: an interpreter, or a program that starts one, from start to end.

use std::any::Any;
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Error, Result, ensure};

use crate::contestant::Contestant;
use crate::subject::{Preload, Subject};

/// A command that is started and waited for.
pub struct Process {
    subject: Subject,
    command: Command,
    /// Resources that must live as long as the contestant.
    _needs: Option<Box<dyn Any>>,
}

impl Process {
    /// Creates a process that runs Python code, after checking its output: an exit status of 0 alone
    /// does not prove that anything ran. `command` returns the command for some code.
    pub fn of_code(subject: Subject, command: impl Fn(&str) -> Command) -> Result<Self> {
        let output = run(command("print(6 * 7)"))?;
        let printed = first_line(&output.stdout);
        ensure!(printed == "42", "it printed {printed:?} for 6 * 7");
        Self::of(subject, command("pass"))
    }

    /// Fails if the command fails: a command that cannot run is not compared.
    fn of(subject: Subject, mut command: Command) -> Result<Self> {
        command.stdin(Stdio::null());
        run_ref(&mut command)?;
        command.stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self {
            subject,
            command,
            _needs: None,
        })
    }

    /// Keeps resources that the command needs.
    pub fn keeping(self, needs: impl Any) -> Self {
        Self {
            _needs: Some(Box::new(needs)),
            ..self
        }
    }
}

/// Returns the output of a successful command, or the error it printed.
pub fn run(mut command: Command) -> Result<Output> {
    run_ref(&mut command)
}

fn run_ref(command: &mut Command) -> Result<Output> {
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => NotInstalled.into(),
        _ => Error::from(error),
    })?;
    let words = first_line(&output.stderr);
    ensure!(output.status.success(), "{}: {words}", output.status);
    Ok(output)
}

fn first_line(bytes: &[u8]) -> String {
    let words = String::from_utf8_lossy(bytes);
    let line = words.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or("it says nothing").trim().to_owned()
}

/// The program does not exist.
#[derive(Debug, thiserror::Error)]
#[error("not installed")]
pub struct NotInstalled;

impl Contestant for Process {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()> {
        let start = Instant::now();
        let status = self.command.status()?;
        record(self.subject, start.elapsed());
        ensure!(status.success(), "{}: {status}", self.subject);
        Ok(())
    }
}

/// `python3 -c pass`.
pub fn python(python: &Path) -> Result<Process> {
    Process::of_code(Subject::Python(Preload::Nothing), |code| {
        let mut command = Command::new(python);
        command.args(["-c", code]);
        command
    })
}

/// `python3 -c` with only these imports.
pub fn python_with(python: &Path, preload: Preload) -> Result<Process> {
    let Some(module) = preload.modules().last() else {
        return self::python(python);
    };
    let mut command = Command::new(python);
    command.arg("-c").arg(format!("import {module}"));
    Process::of(Subject::Python(preload), command)
}

/// `sandfork run`, with nothing warm.
pub fn cold_run(python: &Path) -> Result<Process> {
    let interpreter = format!("python.interpreter={}", python.display());
    Process::of_code(Subject::ColdRun, |code| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sandfork"));
        command.args(["run", "--set", &interpreter, "-c", code]);
        command
    })
}
