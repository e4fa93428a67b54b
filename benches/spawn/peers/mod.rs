//! Installed alternatives to Sandfork. Each takes part once it has run Python on this machine, with
//! the options that its manual recommends for untrusted programs.
//!
//! An installed program may still fail to run: a container engine without its daemon, or a tool
//! without the privilege that it needs. Its error is then the reason why it is left out.

mod oci;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Result;

use crate::common::Conversation;
use crate::contestant::{Contestant, read_times};
use crate::ground::Ground;
use crate::processes::{self, NotInstalled, Process};
use crate::subject::{Peer, Subject};

/// Contestants that take hundreds of milliseconds take one turn in this many rounds.
const SELDOM: usize = 4;

/// Returns a contestant that has run Python, and the number of rounds in one of which it takes a turn.
pub fn contestant(peer: Peer, ground: &Ground) -> Result<(usize, Box<dyn Contestant>)> {
    let python = ground.python.as_path();
    let process = |every, command: fn(&Path, &str) -> Command| {
        let process = Process::of_code(Subject::Peer(peer), |code| command(python, code));
        Ok((every, process?))
    };
    let (every, process) = match peer {
        Peer::Sandlock => return Ok((1, Box::new(Sandlock::new(ground)?))),
        Peer::Bubblewrap => process(1, bubblewrap),
        Peer::Firejail => process(1, firejail),
        Peer::Nsjail => process(1, nsjail),
        Peer::Runc => oci::container(peer, "runc", ground).map(|it| (1, it)),
        Peer::Crun => oci::container(peer, "crun", ground).map(|it| (1, it)),
        Peer::Gvisor => process(SELDOM, gvisor),
        Peer::DockerExec => docker_exec().map(|it| (SELDOM, it)),
        Peer::DockerRun => process(SELDOM, docker_run),
    }?;
    Ok((every, Box::new(process)))
}

fn with_code(mut command: Command, python: &Path, code: &str) -> Command {
    command.arg(python).args(["-c", code]);
    command
}

/// All namespaces, with the host read-only.
fn bubblewrap(python: &Path, code: &str) -> Command {
    let mut command = Command::new("bwrap");
    command
        .args(["--unshare-all", "--die-with-parent", "--new-session"])
        .args(["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"])
        .args(["--tmpfs", "/tmp", "--"]);
    with_code(command, python, code)
}

fn firejail(python: &Path, code: &str) -> Command {
    let mut command = Command::new("firejail");
    command
        .args(["--quiet", "--noprofile", "--net=none", "--caps.drop=all"])
        .args(["--nonewprivs", "--seccomp", "--private-tmp", "--"]);
    with_code(command, python, code)
}

/// All namespaces, with the host read-only and an unused uid.
fn nsjail(python: &Path, code: &str) -> Command {
    let mut command = Command::new("nsjail");
    command
        .args(["--mode", "o", "--really_quiet", "--chroot", "/"])
        .args(["--user", "99999", "--group", "99999", "--"]);
    with_code(command, python, code)
}

/// The tool's own mode for a single command: it sees the host's files, and changes are discarded.
fn gvisor(python: &Path, code: &str) -> Command {
    let mut command = Command::new("runsc");
    if !nix::unistd::geteuid().is_root() {
        command.arg("--rootless");
    }
    command.args(["--network=none", "do"]);
    with_code(command, python, code)
}

/// A Docker image that must be present already: nothing is pulled. Its interpreter differs from the measured one in
/// version and build.
const IMAGE: &str = "python:3-slim";

fn docker(words: &[&str]) -> Command {
    let mut command = Command::new("docker");
    command.args(words);
    command
}

const DOCKER_RUN: [&str; 4] = ["run", "--rm", "--pull=never", "--network=none"];

/// A container for each run, created and removed.
fn docker_run(_: &Path, code: &str) -> Command {
    docker(&[&DOCKER_RUN, &[IMAGE, "python3", "-c", code][..]].concat())
}

/// One more process in an existing container, which keeps the state of earlier ones.
fn docker_exec() -> Result<Process> {
    let idle = ["--detach", IMAGE, "sleep", "infinity"];
    let id = processes::run(docker(&[&DOCKER_RUN[..], &idle].concat()))?.stdout;
    let container = Container(String::from_utf8(id)?.trim().to_owned());
    let exec = |code: &str| docker(&["exec", &container.0, "python3", "-c", code]);
    let process = Process::of_code(Subject::Peer(Peer::DockerExec), exec)?;
    Ok(process.keeping(container))
}

/// A running container, removed when dropped.
struct Container(String);

impl Drop for Container {
    fn drop(&mut self) {
        // The engine reports its own errors.
        _ = docker(&["rm", "--force", &self.0])
            .stdout(Stdio::null())
            .status();
    }
}

/// A Python library, whose sandboxes are made by a process that has loaded it.
struct Sandlock(Conversation);

impl Sandlock {
    fn new(ground: &Ground) -> Result<Self> {
        let library = ground.environments.sandlock.as_ref().ok_or(NotInstalled)?;
        let mut command = Command::new(library);
        command
            .args(["-c", include_str!("../sandlock_probe.py")])
            .arg(&ground.python)
            .arg(&ground.installation);
        let mut sandlock = Self(Conversation::start(command)?);
        // The probe replies with an error message if it cannot run.
        sandlock.turn(&mut |_, _| ())?;
        Ok(sandlock)
    }
}

impl Contestant for Sandlock {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<()> {
        self.0.send("1")?;
        for time in read_times(&mut self.0, 1)? {
            record(Subject::Peer(Peer::Sandlock), time);
        }
        Ok(())
    }
}
