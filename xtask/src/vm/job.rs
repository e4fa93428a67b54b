//! The job of a guest, and the events with which it reports the results.

use std::path::PathBuf;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The user who runs the tests.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
pub enum User {
    /// Root, logged in: beside other processes in a cgroup that systemd made.
    Root,
    /// An ordinary user, alone in a cgroup that is delegated to it (`Delegate=yes`).
    Delegated,
    /// An ordinary user, logged in, without a cgroup of its own.
    Plain,
    /// A service of an ordinary user, with `Delegate=yes`, which starts Sandfork beside itself.
    Service,
    /// Like `Service`, with `DelegateSubgroup=main`.
    Subgroup,
}

/// The cgroups that a guest has.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize, ValueEnum)]
pub enum Cgroups {
    /// Version 2, as systemd arranges it.
    V2,
    /// Version 1, with a hierarchy for each controller, as before 2020.
    V1,
    /// None mounted.
    #[value(name = "none")]
    Absent,
}

/// A program with its arguments.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Program {
    /// The name of its results.
    pub name: String,
    /// The program itself, then its arguments.
    pub words: Vec<String>,
}

/// The job of one guest, which reads it as JSON.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Job {
    /// The user to run as.
    pub user: User,
    /// The kind of cgroups.
    pub cgroups: Cgroups,
    /// Settings of sysctl(8), as paths beneath `/proc/sys`, applied before anything runs.
    pub settings: Vec<(String, String)>,
    /// The programs, run one after the other.
    pub programs: Vec<Program>,
    /// Their working directory.
    pub directory: PathBuf,
    /// The time limit of each program.
    pub deadline: Duration,
}

/// An event that the guest reports on a line. All other lines are output of programs.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub enum Event {
    /// The kernel of this release runs its first program.
    Booted(String),
    /// This program starts.
    Began(String),
    /// The program ended with this exit status, or 128 plus a signal number, as in a shell.
    Ended(i32),
    /// The job is done.
    Finished,
    /// The guest could not do its job.
    Failed(String),
}

/// The prefix of an event's line, which no test prints.
const MARK: &str = "@sandfork-vm ";

impl Event {
    /// Formats the event as a line.
    pub fn to_line(&self) -> String {
        let event = serde_json::to_string(self).unwrap_or_default();
        format!("{MARK}{event}")
    }

    /// Parses a line. Returns `None` for a program's output. If a program's last line has no
    /// newline, the event follows it on the same line.
    pub fn from_line(line: &str) -> Option<(&str, Self)> {
        let (before, event) = line.split_once(MARK)?;
        Some((before, serde_json::from_str(event).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_distinguished_from_output() {
        for event in [
            Event::Booted("6.1.0-50-cloud-amd64".to_owned()),
            Event::Began("kernel".to_owned()),
            Event::Ended(101),
            Event::Finished,
            Event::Failed("mount /dev/vda: EIO".to_owned()),
        ] {
            let line = event.to_line();
            assert_eq!(Event::from_line(&line), Some(("", event)));
        }
        assert_eq!(Event::from_line("test booted ... ok"), None);
        let behind = Event::from_line("no newline@sandfork-vm {\"Ended\":0}");
        assert_eq!(behind, Some(("no newline", Event::Ended(0))));
    }
}
