//! The messages from a supervisor to a caller.

use std::collections::BTreeMap;

use sandfork_egress::control::Question;
use serde::Serialize;

use super::{Mapping, TaskLoss, TaskOutcome, WireOutcome};
use crate::error::ErrorKind;
use crate::outcome::{Enforced, PolicyIdentity};
use crate::protocol::message::{Display, MessageError, ToolCall, encode_message};
use crate::protocol::{Blob, FrameLimits, Value};

/// A message from a supervisor.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ClientEvent {
    /// The session is ready.
    Opened(Box<Opened>),
    /// Output of a cell or a program, in the payload.
    Output {
        /// The cell's number, or 0 for a program.
        id: u64,
        /// `stdout` or `stderr`.
        stream: &'static str,
    },
    /// A cell displays data.
    Display(Display),
    /// A cell calls a host tool, and waits for
    /// [`ClientRequest::Return`](super::ClientRequest::Return).
    Call(ToolCall),
    /// A guest connects to a host that its policy allows, and waits for
    /// [`ClientRequest::Decide`](super::ClientRequest::Decide).
    Connect(Question),
    /// A cell ended, or a request that defines variables or tools was handled.
    Outcome(Box<CellOutcome>),
    /// A file request succeeded. If the request opened a file, this message carries the descriptor.
    File(FileAnswer),
    /// A snapshot of the session was created.
    Snapshot {
        /// The request's number.
        id: u64,
        /// The snapshot's number.
        snapshot: u64,
        /// The memory that the snapshot takes, bytes.
        bytes: u64,
    },
    /// The snapshot was saved.
    Saved {
        /// The length of the file, bytes.
        bytes: u64,
    },
    /// The session was paused, was resumed, or ended while it was paused. The supervisor sends this event unprompted.
    State {
        /// The new state.
        session: Presence,
    },
    /// A program has started. Its output follows in [`ClientEvent::Output`] with number 0.
    Started {
        /// The PID in the sandbox, as the sandbox reports it.
        pid: i32,
    },
    /// A program has received the input, signal or size of a request, or the session is paused as requested.
    Accepted {
        /// The request's number.
        id: u64,
    },
    /// The running programs of a session.
    Programs {
        /// The programs.
        programs: Vec<RunningProgram>,
    },
    /// The watch of a directory has started. Later changes follow in [`ClientEvent::Changes`].
    Watching,
    /// Changes in a watched directory.
    Changes {
        /// The events, in order.
        events: Vec<FileEvent>,
    },
    /// A program, or the watch of a directory, has ended. This is the last event of the connection.
    Ended(ProgramEnded),
    /// The session or the batch has ended, and its resources are released.
    Closed,
    /// A batch has started.
    Mapping(Mapping),
    /// A task has run. Its output was sent before, in [`ClientEvent::Output`].
    Done(Box<TaskOutcome>),
    /// No sandbox could be provided for a task.
    Lost(TaskLoss),
    /// A request failed.
    Error {
        /// The request's number, if the request had one.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        /// The kind of the error.
        error: ErrorCode,
        /// One sentence that names the problem and the remedy.
        message: String,
        /// errno(3) of a failed file request, or of a program that could not be started.
        #[serde(skip_serializing_if = "Option::is_none")]
        errno: Option<i32>,
        /// Why the session has ended, as a clause without a remedy. `message` also has the remedy for Rust callers.
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
}

/// The result of an operation on one of the session's files.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileAnswer {
    /// The request's number.
    pub id: u64,
    /// The size of a file that was opened for reading, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// The entry that was described.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<FileEntry>,
    /// The entries of the directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<FileEntry>>,
}

/// A running program.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct RunningProgram {
    /// The PID in the sandbox, as the sandbox reports it.
    pub pid: i32,
    /// The program and its arguments.
    pub argv: Vec<String>,
}

/// How a program ended.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ProgramEnded {
    /// `exited`, `signal`, `timeout`, `output-limit` or `lost`.
    pub end: &'static str,
    /// The exit status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// The signal that ended the program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why the program was lost, as a clause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The properties of an open session.
#[derive(Clone, Debug, Serialize)]
pub struct Opened {
    /// The number of the request that restarted or rolled back the session. `None` if the session was just opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// [`VERSION`](crate::protocol::VERSION).
    pub version: u32,
    /// The session's number, to which connections for programs refer. `None` for a session of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// The number of cells that ran before the snapshot with which the session started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cells: Option<u64>,
    /// The layers that hold.
    pub enforced: Enforced,
    /// The session's policy.
    pub policy: PolicyIdentity,
    /// Whether packages can be added to the session.
    pub can_install: bool,
    /// The session's interpreter.
    pub python: Python,
    /// The limits by policy key, in seconds, bytes or counts.
    pub limits: BTreeMap<&'static str, f64>,
}

/// The interpreter of a session.
#[derive(Clone, Debug, Serialize)]
pub struct Python {
    /// The path of the executable.
    pub executable: String,
    /// The version, such as `3.11.7`.
    pub version: String,
    /// `sys.prefix`: the environment whose packages can be imported.
    pub environment: String,
}

/// How a cell ended.
#[derive(Clone, Debug, Serialize)]
pub struct CellOutcome {
    /// The request's number.
    pub id: u64,
    /// The outcome, without output, value, and the properties in [`Opened`].
    pub outcome: WireOutcome,
    /// The cell's CPU limit in seconds, if it differs from the policy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<f64>,
    /// The cell's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Whether the value comes from a tool that ends cells.
    #[serde(rename = "final")]
    pub by_tool: bool,
    /// Whether the value should not be displayed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
    /// The state of the session after the cell.
    pub session: SessionState,
    /// The number of cells that the worker has run, including this one.
    pub execution_count: u64,
    /// The buffers of the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

/// Whether a session continues.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// The worker waits for the next cell.
    Live,
    /// The worker has ended, and its variables, imports and files are lost.
    Ended,
}

/// The state of a session with respect to pauses.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// The session has a worker, which waits for the next cell.
    Live,
    /// The session is paused: it has no worker, and its state is on disk.
    Paused,
    /// The session ended while it was paused.
    Ended,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileEntry {
    /// The name, with U+FFFD in place of invalid UTF-8.
    pub name: String,
    /// `file`, `dir`, `symlink` or `other`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The size, bytes.
    pub size: u64,
    /// The time of the last modification, seconds since the Unix epoch.
    pub modified: f64,
}

/// An event in a watched directory. Paths are relative to that directory, with U+FFFD in place of invalid UTF-8.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "type", content = "path", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FileEvent {
    /// The entry was created, or moved to this path.
    Create(String),
    /// The entry was written to or truncated.
    Write(String),
    /// The entry was removed.
    Remove(String),
    /// The entry was moved away from this path. A move to a watched directory also causes a `Create` event there.
    Rename(String),
    /// The mode, the times or other attributes of the entry changed.
    Chmod(String),
    /// Events were lost, or the tree has more directories than can be watched. The caller should read the whole
    /// directory again.
    Overflow,
}

impl FileEvent {
    /// Returns the path of the entry, or `None` for [`FileEvent::Overflow`].
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Create(path)
            | Self::Write(path)
            | Self::Remove(path)
            | Self::Rename(path)
            | Self::Chmod(path) => Some(path),
            Self::Overflow => None,
        }
    }
}

/// The keyword for the kind of an error: that of an [`ErrorKind`], or one of the constants here.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct ErrorCode(&'static str);

impl ErrorCode {
    /// A file request failed.
    pub const FILE: Self = Self("file");
    /// The caller's message cannot be parsed, or is not allowed at this time.
    pub const PROTOCOL: Self = Self("protocol");
}

impl From<ErrorKind> for ErrorCode {
    fn from(kind: ErrorKind) -> Self {
        Self(kind.as_str())
    }
}

impl ClientEvent {
    /// Returns the number of the request that the event belongs to.
    pub fn id(&self) -> Option<u64> {
        match self {
            Self::Opened(opened) => opened.id,
            Self::Output { id, .. }
            | Self::File(FileAnswer { id, .. })
            | Self::Snapshot { id, .. }
            | Self::Accepted { id } => Some(*id),
            Self::Display(display) => Some(display.id),
            Self::Call(call) => Some(call.id),
            Self::Outcome(outcome) => Some(outcome.id),
            Self::Error { id, .. } => *id,
            _ => None,
        }
    }

    /// Creates the error that replaces an event that could not be encoded, because it exceeds the limits of frames
    /// to a caller. `id` is the number of the request.
    pub fn not_written(id: Option<u64>, error: &MessageError) -> Self {
        Self::Error {
            id,
            error: ErrorCode::PROTOCOL,
            message: format!("a reply could not be encoded: {error}"),
            errno: None,
            why: None,
        }
    }

    /// Appends the message's frame to `out`.
    ///
    /// # Errors
    ///
    /// If the header or the payload exceeds its limit.
    pub fn encode_into(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), MessageError> {
        encode_message(self, payload, &FrameLimits::TO_CALLER, out)
    }
}
