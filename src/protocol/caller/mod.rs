//! The messages between a caller and its supervisor. Most connections serve one session or one batch.
//!
//! Both ends are trusted, but the guest's data in a [`ClientEvent`] (values, displays, calls, errors) is
//! as hostile as on the worker's link.

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
    /// Opens a session, as the first message of its connection. Answered by [`ClientEvent::Opened`].
    Open(Box<Open>),
    /// Runs the Python source in the payload. Answered by [`ClientEvent::Outcome`], like the next two requests.
    Cell(Cell),
    /// Defines variables.
    Set(Variables),
    /// Defines host tools.
    Tools(Tools),
    /// The result of a tool call. Not answered.
    Return(ToolAnswer),
    /// The decision on a connection. Not answered.
    Decide {
        /// The number of the question, from [`ClientEvent::Connect`].
        question: u64,
        /// Whether the connection is allowed. `None` means that there is no decision, and refuses it.
        allowed: Option<bool>,
    },
    /// Interrupts the running cell. Not answered: the cell's outcome reports how the cell ended.
    Interrupt,
    /// Ends the worker and starts a new one. Answered by [`ClientEvent::Opened`].
    Restart {
        /// Repeated in the reply.
        id: u64,
    },
    /// Performs an operation on the session's files. Answered by [`ClientEvent::File`].
    File(FileRequest),
    /// Creates a snapshot of the session. Answered by [`ClientEvent::Snapshot`].
    Snapshot {
        /// Repeated in the reply.
        id: u64,
    },
    /// Pauses the session. Answered by [`ClientEvent::Accepted`] once the session's process has ended.
    Pause {
        /// Repeated in the reply.
        id: u64,
    },
    /// Replaces the session's state by that of a snapshot. Answered by [`ClientEvent::Opened`], or by an error that
    /// leaves the session's state unchanged.
    Rollback {
        /// Repeated in the reply.
        id: u64,
        /// The snapshot's number.
        snapshot: u64,
    },
    /// Discards a snapshot, on a connection without a session. Answered by [`ClientEvent::Closed`].
    Discard {
        /// The snapshot's number.
        snapshot: u64,
    },
    /// Saves a snapshot to a file, on a connection without a session. Answered by [`ClientEvent::Saved`].
    Save {
        /// The snapshot's number.
        snapshot: u64,
        /// The absolute path.
        path: PathBuf,
    },
    /// Runs a program in a session, as the first message of the program's connection. Answered by
    /// [`ClientEvent::Started`].
    Program(Box<StartProgram>),
    /// Attaches to a program that another connection started, as the first message of a connection. Answered by
    /// [`ClientEvent::Started`].
    Attach {
        /// The session's number.
        session: u64,
        /// The program's PID in the sandbox.
        pid: i32,
    },
    /// Lists the running programs of a session, on a connection that serves nothing else yet. Answered by
    /// [`ClientEvent::Programs`].
    Programs {
        /// The session's number.
        session: u64,
    },
    /// Watches a directory of a session, as the first message of a connection. Answered by [`ClientEvent::Watching`].
    Watch(WatchRequest),
    /// Writes the payload to the program's standard input. Answered by [`ClientEvent::Accepted`] once the pipe has
    /// accepted all bytes. The next two requests have the same reply.
    Input {
        /// Repeated in the reply.
        id: u64,
        /// Whether this is the end of the input.
        #[serde(default)]
        end: bool,
    },
    /// Sends a signal to the program's process group.
    Signal {
        /// Repeated in the reply.
        id: u64,
        /// The signal's number.
        signal: i32,
    },
    /// Resizes the program's terminal.
    Size {
        /// Repeated in the reply.
        id: u64,
        /// The new size.
        #[serde(flatten)]
        size: ProgramTerminal,
    },
    /// Ends the session. Answered by [`ClientEvent::Closed`].
    Close,
    /// Opens a batch, as the first message of its connection. Answered by [`ClientEvent::Mapping`].
    Map(Box<OpenBatch>),
    /// Submits a task of a batch. The payload is a line in the format of `sandfork map`. Answered by
    /// [`ClientEvent::Done`] or [`ClientEvent::Lost`], or by an error, which ends the batch.
    Task(TaskHeader),
    /// Marks the end of the tasks. Answered by [`ClientEvent::Closed`], after the last result.
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
    /// How much time in host tools does not count towards the cell's wall time.
    #[serde(default)]
    pub tool_time: ToolTime,
    /// The number of the snapshot from which the session starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<u64>,
    /// The absolute path of the saved snapshot from which the session starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<PathBuf>,
    /// Whether the message carries a descriptor for the guest's standard input.
    #[serde(default)]
    pub stdin: bool,
    /// Whether denials report if the host has a path that the guest could not see.
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
    /// The differences between the caller's environment and the supervisor's: the caller's value, or `None` if
    /// the caller lacks the variable.
    #[serde(default)]
    pub environ: BTreeMap<String, Option<String>>,
    /// The absolute paths from which the caller imports modules. A policy that makes one of them writable is
    /// rejected.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub import_paths: Vec<PathBuf>,
}

/// The time for which the wall clock of one cell may stop while tool calls wait for the host. It is bounded,
/// because a guest that always has a pending call would otherwise never reach its limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolTime {
    /// This long. With zero the clock never stops.
    #[serde(with = "seconds")]
    AtMost(Duration),
    /// This long, or ten times the cell's wall limit if that is more.
    #[serde(with = "seconds")]
    AtLeast(Duration),
}

impl ToolTime {
    /// Returns the time for a cell with this wall limit.
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

/// (De)serializes a duration as a number of seconds.
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
    /// Repeated in the replies.
    pub id: u64,
    /// The file name in tracebacks.
    pub filename: String,
    /// `sys.argv[1:]`.
    #[serde(default)]
    pub argv: Vec<String>,
    /// The value that the cell returns.
    #[serde(default)]
    pub last: ResultMode,
    /// What the worker does after the cell.
    #[serde(default)]
    pub then: AfterCell,
    /// Whether output is sent as it arrives. Otherwise it is sent right before the outcome.
    #[serde(default)]
    pub stream: bool,
    /// The wall limit in seconds, by default `limits.wall`.
    #[serde(default)]
    pub wall: Option<f64>,
}

/// An operation on a file of the session.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FileRequest {
    /// Repeated in the reply.
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
    /// Opens the file for reading. The reply carries a descriptor.
    OpenRead,
    /// Opens the file for writing. The reply carries a descriptor.
    OpenWrite {
        /// Whether to append to the existing contents rather than truncate the file.
        #[serde(default)]
        append: bool,
    },
    /// Lists the entries of a directory.
    List,
    /// Describes one entry.
    Stat,
    /// Removes the entry.
    Remove {
        /// Whether to remove a directory with its contents.
        #[serde(default)]
        recursive: bool,
    },
    /// Creates a directory.
    MakeDir {
        /// Whether to create missing parents and to accept an existing directory.
        #[serde(default)]
        parents: bool,
    },
}

impl ClientRequest {
    /// Returns the `blob` field of the message.
    pub const fn blob(&self) -> Option<&Blob> {
        match self {
            Self::Set(set) => set.blob.as_ref(),
            Self::Return(answer) => answer.blob.as_ref(),
            _ => None,
        }
    }

    /// Returns the number that the reply repeats.
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
    fn tool_time_is_bounded_for_every_setting() {
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
