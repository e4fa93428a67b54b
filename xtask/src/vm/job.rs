//! The job of a guest, and the events with which it reports the results.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::Error;

/// The user who runs the tests.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum User {
    /// Root, logged in: with other processes in a cgroup that systemd made.
    Root,
    /// An ordinary user, alone in a cgroup that was delegated to it (`Delegate=yes`).
    Delegated,
    /// An ordinary user, logged in, without a cgroup of its own.
    Plain,
    /// A service of an ordinary user, with `Delegate=yes`, which starts Sandfork beside itself.
    Service,
    /// Like `Service`, with `DelegateSubgroup=main`.
    Subgroup,
}

impl User {
    /// All users.
    pub const ALL: [Self; 5] = [
        Self::Root,
        Self::Delegated,
        Self::Plain,
        Self::Service,
        Self::Subgroup,
    ];

    /// The users who run all tests; the others differ from them only in their cgroup.
    pub const TESTING: [Self; 3] = [Self::Root, Self::Delegated, Self::Plain];

    /// The name in `--user`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Delegated => "delegated",
            Self::Plain => "plain",
            Self::Service => "service",
            Self::Subgroup => "subgroup",
        }
    }
}

impl FromStr for User {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|user| user.name() == text);
        known.ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|user| user.name()).collect();
            format!("unknown user `{text}`: there are {}", names.join(", ")).into()
        })
    }
}

/// The cgroups that a guest has.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cgroups {
    /// Version 2, as systemd arranges it.
    V2,
    /// Version 1, a hierarchy for each controller, as before 2020.
    V1,
    /// None mounted.
    Absent,
}

impl Cgroups {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::V2, Self::V1, Self::Absent];

    /// The name in a job and in a table.
    pub fn name(self) -> &'static str {
        match self {
            Self::V2 => "v2",
            Self::V1 => "v1",
            Self::Absent => "none",
        }
    }
}

impl FromStr for Cgroups {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let known = Self::ALL.into_iter().find(|cgroups| cgroups.name() == text);
        known.ok_or_else(|| format!("unknown cgroups `{text}`: there are v2, v1, none").into())
    }
}

/// A program with its arguments.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Program {
    /// The name of its results.
    pub name: String,
    /// The program itself, then its arguments.
    pub words: Vec<String>,
}

/// The job of one guest.
#[derive(Clone, Debug, Eq, PartialEq)]
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

impl Job {
    /// The job in the format that the guest reads.
    pub fn to_json(&self) -> String {
        let program = |it: &Program| json!({"name": it.name, "words": it.words});
        json!({
            "user": self.user.name(),
            "cgroups": self.cgroups.name(),
            "settings": self.settings,
            "programs": self.programs.iter().map(program).collect::<Vec<_>>(),
            "directory": self.directory,
            "deadline": self.deadline.as_secs(),
        })
        .to_string()
    }

    /// Parses the job.
    pub fn from_json(text: &str) -> Result<Self, Error> {
        let job: Value = serde_json::from_str(text)?;
        let strings = |value: &Value| serde_json::from_value::<Vec<String>>(value.clone());
        let programs = job["programs"].as_array().ok_or("a job without programs")?;
        let program = |it: &Value| {
            Ok::<_, Error>(Program {
                name: it["name"]
                    .as_str()
                    .ok_or("a program without a name")?
                    .to_owned(),
                words: strings(&it["words"])?,
            })
        };
        Ok(Self {
            user: job["user"]
                .as_str()
                .ok_or("a job without a user")?
                .parse()?,
            cgroups: job["cgroups"]
                .as_str()
                .ok_or("a job without a word on cgroups")?
                .parse()?,
            settings: serde_json::from_value(job["settings"].clone())?,
            programs: programs.iter().map(program).collect::<Result<_, _>>()?,
            directory: serde_json::from_value(job["directory"].clone())?,
            deadline: Duration::from_secs(job["deadline"].as_u64().ok_or("no deadline")?),
        })
    }
}

/// An event that the guest reports on a line. All other lines are output of programs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// The kernel of this release runs its first program.
    Booted(String),
    /// This program starts.
    Began(String),
    /// The program ended, with an exit status, or a signal above 128, as a shell reports it.
    Ended(i32),
    /// The job is done.
    Finished,
    /// The guest could not do its job.
    Failed(String),
}

/// The prefix of an event's line. No test prints this.
const MARK: &str = "@sandfork-vm ";

impl Event {
    /// Formats the event as a line.
    pub fn to_line(&self) -> String {
        match self {
            Self::Booted(release) => format!("{MARK}booted {release}"),
            Self::Began(name) => format!("{MARK}began {name}"),
            Self::Ended(status) => format!("{MARK}ended {status}"),
            Self::Finished => format!("{MARK}finished"),
            Self::Failed(why) => format!("{MARK}failed {why}"),
        }
    }

    /// Parses a line. Returns `None` for a program's output. If a program's last line has no
    /// newline, the event follows it on the same line.
    pub fn from_line(line: &str) -> Option<(&str, Self)> {
        let (before, event) = line.split_once(MARK)?;
        let (word, rest) = event.split_once(' ').unwrap_or((event, ""));
        let rest_owned = rest.to_owned();
        let event = match word {
            "booted" => Self::Booted(rest_owned),
            "began" => Self::Began(rest_owned),
            "ended" => Self::Ended(rest.parse().ok()?),
            "finished" => Self::Finished,
            "failed" => Self::Failed(rest_owned),
            _ => return None,
        };
        Some((before, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_read_as_it_was_written() {
        let job = Job {
            user: User::Delegated,
            cgroups: Cgroups::V1,
            settings: vec![("user/max_user_namespaces".to_owned(), "0".to_owned())],
            programs: vec![Program {
                name: "kernel".to_owned(),
                words: vec!["/target/kernel".to_owned(), "a b\n\"c\"".to_owned()],
            }],
            directory: "/work".into(),
            deadline: Duration::from_secs(90),
        };
        assert_eq!(Job::from_json(&job.to_json()).expect("a job"), job);
    }

    #[test]
    fn events_are_told_from_what_programs_print() {
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
        let behind = Event::from_line("no newline@sandfork-vm ended 0");
        assert_eq!(behind, Some(("no newline", Event::Ended(0))));
    }
}
