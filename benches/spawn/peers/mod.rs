//! Installed alternatives to Sandfork. Each takes part once it has shown that it runs Python here,
//! in the way that its manual recommends for untrusted programs.
//!
//! An installed program may still fail to run: a container engine without its daemon, or a tool
//! without the privilege that it needs. Its error is the reason for which it is left out.

mod docker;
mod oci;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::contestant::{Contestant, Error};
use crate::ground::Ground;
use crate::probe::Probe;
use crate::processes::{NotInstalled, Process};
use crate::subject::{Peer, Subject};

/// Contestants that take hundreds of milliseconds take one turn in this many rounds.
const SELDOM: usize = 4;

/// A contestant that has shown that it runs Python, and how often it takes a turn.
pub fn contestant(peer: Peer, ground: &Ground) -> Result<(Box<dyn Contestant>, usize), Error> {
    let python = ground.python.as_path();
    let process = |command: fn(&Path, &str) -> Command| {
        Process::of_code(Subject::Peer(peer), |code| command(python, code))
    };
    Ok(match peer {
        Peer::Bubblewrap => (Box::new(process(bubblewrap)?), 1),
        Peer::Sandlock => (Box::new(Sandlock::new(ground)?), 1),
        Peer::Firejail => (Box::new(process(firejail)?), 1),
        Peer::Nsjail => (Box::new(process(nsjail)?), 1),
        Peer::Runc => (Box::new(oci::container(peer, "runc", ground)?), 1),
        Peer::Crun => (Box::new(oci::container(peer, "crun", ground)?), 1),
        Peer::Gvisor => (Box::new(process(gvisor)?), SELDOM),
        Peer::DockerExec => (Box::new(docker::exec()?), SELDOM),
        Peer::DockerRun => (Box::new(docker::run()?), SELDOM),
    })
}

fn with_code(mut command: Command, python: &Path, code: &str) -> Command {
    command.arg(python).args(["-c", code]);
    command
}

/// Every namespace, the host read-only.
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

/// Every namespace, the host read-only, an unused id.
fn nsjail(python: &Path, code: &str) -> Command {
    let mut command = Command::new("nsjail");
    command
        .args(["--mode", "o", "--really_quiet", "--chroot", "/"])
        .args(["--user", "99999", "--group", "99999", "--"]);
    with_code(command, python, code)
}

/// The tool's own way to run one command: it sees the host's files, and changes are discarded.
fn gvisor(python: &Path, code: &str) -> Command {
    let mut command = Command::new("runsc");
    if !is_root() {
        command.arg("--rootless");
    }
    command.args(["--network=none", "do"]);
    with_code(command, python, code)
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A Python library: its sandboxes are made from a process that has it loaded.
struct Sandlock(Probe);

impl Sandlock {
    fn new(ground: &Ground) -> Result<Self, Error> {
        let library = ground.environments.sandlock.as_ref().ok_or(NotInstalled)?;
        let mut command = Command::new(library);
        command
            .args(["-c", include_str!("../sandlock_probe.py")])
            .arg(&ground.python)
            .arg(&ground.installation);
        let mut sandlock = Self(Probe::start(command)?);
        // The probe answers with an error message if it cannot run.
        sandlock.turn(&mut |_, _| ())?;
        Ok(sandlock)
    }
}

impl Contestant for Sandlock {
    fn turn(&mut self, record: &mut dyn FnMut(Subject, Duration)) -> Result<(), Error> {
        self.0.ask("1")?;
        for time in self.0.hear_times(1)? {
            record(Subject::Peer(Peer::Sandlock), time);
        }
        Ok(())
    }
}
