//! The messages between a caller and its supervisor. Each connection is one session or one batch.
//!
//! Both ends are trusted, but the guest's data in a [`ClientEvent`] (values, displays, calls, errors) is
//! as hostile here as on the worker's link.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::Blob;
use super::message::{AfterCell, ResultMode, ToolAnswer, Tools, Variables};

mod answer;
mod batch;
mod beside;
mod parse;
mod policy_choice;
mod wire_outcome;

pub use answer::{
    CellOutcome, ClientEvent, ErrorCode, FileAnswer, FileEntry, FileEvent, Opened, Presence,
    ProgramEnded, Python, RunningProgram, SessionState,
};
pub use batch::{Mapping, OpenBatch, Order, TaskHeader, TaskLoss, TaskOutcome};
pub use beside::{ProgramTerminal, StartProgram, WatchRequest};
pub use policy_choice::PolicyChoice;
pub use wire_outcome::WireOutcome;

/// A message from a caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClientRequest {
    /// The first message, with the policy of the session. Answered by [`ClientEvent::Opened`].
    Open(Box<Open>),
    /// Run Python source, which is the payload. Answered by [`ClientEvent::Outcome`], like the next two.
    Cell(Cell),
    /// Define variables.
    Set(Variables),
    /// Define host tools.
    Tools(Tools),
    /// The result of a call. Not answered.
    Return(ToolAnswer),
    /// The decision on a connection. Not answered.
    Decide {
        /// The number of the question, from [`ClientEvent::Connect`].
        question: u64,
        /// Whether it is allowed; none if there is no decision, which refuses it.
        allowed: Option<bool>,
    },
    /// Interrupt the running cell. Not answered: the cell's outcome reports how it ended.
    Interrupt,
    /// End the worker and start another. Answered by [`ClientEvent::Opened`].
    Restart {
        /// Repeated in the answer.
        id: u64,
    },
    /// An operation on the session's files. Answered by [`ClientEvent::File`].
    File(FileRequest),
    /// Copy the session's state. Answered by [`ClientEvent::Snapshot`].
    Snapshot {
        /// Repeated in the answer.
        id: u64,
    },
    /// Pause the session. Answered by [`ClientEvent::Accepted`] once its process has ended.
    Pause {
        /// Repeated in the answer.
        id: u64,
    },
    /// Replace the session's state by that of a snapshot. Answered by [`ClientEvent::Opened`], or by an error, after
    /// which the session has the state that it had.
    Rollback {
        /// Repeated in the answer.
        id: u64,
        /// The snapshot's number.
        snapshot: u64,
    },
    /// Discard a snapshot, on a connection that has no session. Answered by [`ClientEvent::Closed`].
    Discard {
        /// The snapshot's number.
        snapshot: u64,
    },
    /// Save a snapshot as a file, on a connection that has no session. Answered by [`ClientEvent::Saved`].
    Save {
        /// The snapshot's number.
        snapshot: u64,
        /// The absolute path.
        path: PathBuf,
    },
    /// The first message of a connection that runs one program in a session. Answered by [`ClientEvent::Started`].
    Program(Box<StartProgram>),
    /// The first message of a connection that acts on a program of another connection. Answered by
    /// [`ClientEvent::Started`].
    Attach {
        /// The session's number.
        session: u64,
        /// The program's number.
        pid: i32,
    },
    /// List the programs that run in a session, on a connection that has no purpose yet. Answered by
    /// [`ClientEvent::Programs`].
    Programs {
        /// The session's number.
        session: u64,
    },
    /// The first message of a connection that watches a directory of a session. Answered by [`ClientEvent::Watching`].
    Watch(WatchRequest),
    /// Bytes for the program's standard input, which are the payload. Answered by [`ClientEvent::Accepted`] once its
    /// pipe has taken them, like the next two.
    Input {
        /// Repeated in the answer.
        id: u64,
        /// Whether nothing follows.
        #[serde(default)]
        end: bool,
    },
    /// Send the program's process group a signal.
    Signal {
        /// Repeated in the answer.
        id: u64,
        /// The signal's number.
        signal: i32,
    },
    /// Give the program's terminal another size.
    Size {
        /// Repeated in the answer.
        id: u64,
        /// The size.
        #[serde(flatten)]
        size: ProgramTerminal,
    },
    /// End the session. Answered by [`ClientEvent::Closed`].
    Close,
    /// The first message of a batch. Answered by [`ClientEvent::Mapping`].
    Map(Box<OpenBatch>),
    /// A task of a batch. The payload is a line in the format of `sandfork map`. Answered by
    /// [`ClientEvent::Done`] or [`ClientEvent::Lost`], or by an error, which ends the batch.
    Task(TaskHeader),
    /// No more tasks follow. Answered by [`ClientEvent::Closed`], after the last result.
    End,
}

/// The settings of a session.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// [`VERSION`](super::VERSION).
    pub version: u32,
    /// The sandbox.
    #[serde(flatten)]
    pub sandbox: SandboxChoice,
    /// How much of the time in host tools does not count for the cell.
    #[serde(default)]
    pub tool_time: ToolTime,
    /// The number of the snapshot with which the session begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<u64>,
    /// The absolute path of the saved snapshot with which it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<PathBuf>,
    /// Whether a descriptor for the guest's standard input comes with the message.
    #[serde(default)]
    pub stdin: bool,
    /// Whether the host is asked which of the paths that the guest was not shown it has.
    #[serde(default)]
    pub ask_host: bool,
}

/// The sandbox of a session or a batch.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct SandboxChoice {
    /// The policy.
    pub policy: PolicyChoice,
    /// Overrides of the policy's keys: `limits.wall=2s`.
    #[serde(default)]
    pub set: Vec<String>,
    /// The differences between the caller's environment and the supervisor's: a new value, or none if the
    /// caller lacks the variable.
    #[serde(default)]
    pub environ: BTreeMap<String, Option<String>>,
    /// The absolute paths from which the caller imports modules. No guest may exchange one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub import_paths: Vec<PathBuf>,
}

/// How long the wall clock of one cell may stand still while calls wait for the host. It is bounded:
/// otherwise a guest that always has a call open would never reach its limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolTime {
    /// At most this long. With zero the clock never stands still.
    #[serde(with = "seconds")]
    AtMost(Duration),
    /// This long, or ten times the wall limit of the cell if that is more.
    #[serde(with = "seconds")]
    AtLeast(Duration),
}

impl ToolTime {
    /// The time for a cell with this wall limit.
    pub fn of_cell(self, wall: Duration) -> Duration {
        match self {
            Self::AtMost(time) => time,
            Self::AtLeast(time) => wall.saturating_mul(10).max(time),
        }
    }
}

impl Default for ToolTime {
    fn default() -> Self {
        Self::AtLeast(Duration::ZERO)
    }
}

/// A time as a number of seconds.
mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub fn serialize<S: Serializer>(time: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(time.as_secs_f64())
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        Duration::try_from_secs_f64(seconds).map_err(de::Error::custom)
    }
}

/// A cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Repeated in the answers.
    pub id: u64,
    /// Name shown in tracebacks.
    pub filename: String,
    /// `sys.argv[1:]`.
    #[serde(default)]
    pub argv: Vec<String>,
    /// Which value the cell returns.
    #[serde(default)]
    pub last: ResultMode,
    /// What happens after the cell.
    #[serde(default)]
    pub then: AfterCell,
    /// Whether output is sent as it arrives, and not right before the outcome.
    #[serde(default)]
    pub stream: bool,
    /// Wall time in seconds, in place of `limits.wall`.
    #[serde(default)]
    pub wall: Option<f64>,
}

/// An operation on a file of the session.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FileRequest {
    /// Repeated in the answer.
    pub id: u64,
    /// The path, relative to the work directory.
    pub path: String,
    /// The operation.
    #[serde(flatten)]
    pub op: FileOperation,
}

/// An operation on a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileOperation {
    /// Open it for reading. The answer comes with a descriptor.
    OpenRead,
    /// Open it for writing. The answer comes with a descriptor.
    OpenWrite {
        /// Whether the existing contents stay.
        #[serde(default)]
        append: bool,
    },
    /// List the entries of a directory.
    List,
    /// Describe one entry.
    Stat,
    /// Remove the entry.
    Remove {
        /// Whether a directory is removed with its contents.
        #[serde(default)]
        recursive: bool,
    },
    /// Create a directory.
    MakeDir {
        /// Whether missing parents are created too, and an existing directory is not an error.
        #[serde(default)]
        parents: bool,
    },
}

impl ClientRequest {
    /// The buffers of the message.
    pub const fn blob(&self) -> Option<&Blob> {
        match self {
            Self::Set(set) => set.blob.as_ref(),
            Self::Return(answer) => answer.blob.as_ref(),
            _ => None,
        }
    }

    /// The number that an answer repeats.
    pub const fn id(&self) -> Option<u64> {
        match self {
            Self::Cell(Cell { id, .. })
            | Self::File(FileRequest { id, .. })
            | Self::Set(Variables { id, .. })
            | Self::Tools(Tools { id, .. })
            | Self::Task(TaskHeader { id, .. })
            | Self::Snapshot { id }
            | Self::Pause { id }
            | Self::Input { id, .. }
            | Self::Signal { id, .. }
            | Self::Size { id, .. }
            | Self::Rollback { id, .. }
            | Self::Restart { id } => Some(*id),
            Self::Open(_)
            | Self::Map(_)
            | Self::Program(_)
            | Self::Attach { .. }
            | Self::Programs { .. }
            | Self::Watch(_)
            | Self::Return(_)
            | Self::Decide { .. }
            | Self::Interrupt
            | Self::Discard { .. }
            | Self::Save { .. }
            | Self::End
            | Self::Close => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_tools_is_bounded_whatever_is_said() {
        let of_cell = |text: &str| {
            let time: ToolTime = serde_json::from_str(text).unwrap();
            let again: ToolTime =
                serde_json::from_value(serde_json::to_value(time).unwrap()).unwrap();
            assert_eq!(again, time);
            time.of_cell(Duration::from_secs(3))
        };
        assert_eq!(of_cell(r#"{"at_most": 0}"#), Duration::ZERO);
        assert_eq!(of_cell(r#"{"at_most": 1.5}"#), Duration::from_millis(1500));
        assert_eq!(of_cell(r#"{"at_least": 0}"#), Duration::from_secs(30));
        assert_eq!(of_cell(r#"{"at_least": 600}"#), Duration::from_secs(600));
        let of_none = ToolTime::default().of_cell(Duration::MAX);
        assert_eq!(of_none, Duration::MAX);
        for wrong in [
            r#"{"at_most": -1}"#,
            r#"{"at_most": 1e300}"#,
            r#""counted""#,
        ] {
            serde_json::from_str::<ToolTime>(wrong).unwrap_err();
        }
    }
}
