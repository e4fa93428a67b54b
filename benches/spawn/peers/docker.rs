//! Docker, with an image that is already present: nothing is pulled.

use std::process::{Command, Stdio};

use crate::contestant::Error;
use crate::processes::{self, Kept, Process};
use crate::subject::{Peer, Subject};

/// The image has its own interpreter, whose version and build differ from the measured one.
const IMAGE: &str = "python:3-slim";

/// A container for each run, made and removed.
pub fn run() -> Result<Process, Error> {
    Process::of_code(Subject::Peer(Peer::DockerRun), |code| {
        let mut command = create();
        command.args([IMAGE, "python3", "-c", code]);
        command
    })
}

/// One more process in an existing container, which keeps the state of earlier ones.
pub fn exec() -> Result<Kept<Container>, Error> {
    let container = Container::start()?;
    let process = Process::of_code(Subject::Peer(Peer::DockerExec), |code| {
        let mut command = Command::new("docker");
        command.args(["exec", &container.0, "python3", "-c", code]);
        command
    })?;
    Ok(process.keeping(container))
}

fn create() -> Command {
    let mut command = Command::new("docker");
    command.args(["run", "--rm", "--pull=never", "--network=none"]);
    command
}

/// A running container, removed when dropped.
pub struct Container(String);

impl Container {
    fn start() -> Result<Self, Error> {
        let mut command = create();
        command.args(["--detach", IMAGE, "sleep", "infinity"]);
        let id = processes::run(command)?.stdout;
        Ok(Self(String::from_utf8(id)?.trim().to_owned()))
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let mut command = Command::new("docker");
        command.args(["rm", "--force", &self.0]);
        // The engine reports its own errors.
        _ = command.stdout(Stdio::null()).status();
    }
}
