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
    /// Output of a cell, which is the payload.
    Output {
        /// The cell's number.
        id: u64,
        /// `stdout` or `stderr`.
        stream: &'static str,
    },
    /// A cell shows something.
    Display(Display),
    /// A cell calls a host tool, and waits for
    /// [`ClientRequest::Return`](super::ClientRequest::Return).
    Call(ToolCall),
    /// A guest connects to a host that its policy allows, and waits for
    /// [`ClientRequest::Decide`](super::ClientRequest::Decide).
    Connect(Question),
    /// A cell ended, or another request with the same answer.
    Outcome(Box<CellOutcome>),
    /// A file request is done. A descriptor comes with it if the request opened a file.
    File(FileAnswer),
    /// The session's state was copied.
    Snapshot {
        /// The request's number.
        id: u64,
        /// The snapshot's number.
        snapshot: u64,
        /// The memory that it takes, bytes.
        bytes: u64,
    },
    /// The snapshot was saved.
    Saved {
        /// The length of the file, bytes.
        bytes: u64,
    },
    /// The session was paused, or goes on or has ended after that. Answers no request.
    State {
        /// What it has.
        session: Presence,
    },
    /// A program runs. Its output follows, in [`ClientEvent::Output`] with the number 0.
    Started {
        /// The number of its process in the sandbox, as the sandbox says.
        pid: i32,
    },
    /// A program has got what a request has for it, or a session is paused as a request has it.
    Accepted {
        /// The request's number.
        id: u64,
    },
    /// The programs that run in a session.
    Programs {
        /// Each of them.
        programs: Vec<RunningProgram>,
    },
    /// A directory is watched. What changes in it from now on follows.
    Watching,
    /// What happened in a watched directory.
    Changes {
        /// Each event, in order.
        events: Vec<FileEvent>,
    },
    /// A program, or the watch of a directory, has ended. Nothing follows.
    Ended(ProgramEnded),
    /// The session or the batch has ended, and nothing of it is left.
    Closed,
    /// A batch has started.
    Mapping(Mapping),
    /// A task has run. Its output came before, in [`ClientEvent::Output`].
    Done(Box<TaskOutcome>),
    /// A task got no sandbox.
    Lost(TaskLoss),
    /// A request failed.
    Error {
        /// The request's number, if it had one.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        /// The kind of the error.
        error: ErrorCode,
        /// One sentence that names the thing and the remedy.
        message: String,
        /// errno(3) of a failed file request, or of a program that could not be started.
        #[serde(skip_serializing_if = "Option::is_none")]
        errno: Option<i32>,
        /// Why the session has ended, as part of a sentence: the message has this library's remedy too.
        #[serde(skip_serializing_if = "Option::is_none")]
        why: Option<String>,
    },
}

/// What came of an operation on one of the session's files.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FileAnswer {
    /// The request's number.
    pub id: u64,
    /// The size of a file that was opened for reading, bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// What was described.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<FileEntry>,
    /// What the directory has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<Vec<FileEntry>>,
}

/// A program that runs.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct RunningProgram {
    /// The number of its process in the sandbox, as the sandbox says.
    pub pid: i32,
    /// The program and its arguments.
    pub argv: Vec<String>,
}

/// How a program ended.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct ProgramEnded {
    /// `exited`, `signal`, `timeout`, `output-limit` or `lost`.
    pub end: &'static str,
    /// Its exit status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u8>,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Why it was lost, as part of a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The properties of an open session.
#[derive(Clone, Debug, Serialize)]
pub struct Opened {
    /// The number of the request that restarted the session; none if the connection opened it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<u64>,
    /// [`VERSION`](crate::protocol::VERSION).
    pub version: u32,
    /// The session's number, by which connections for its programs find it; none for a session of this process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u64>,
    /// How many cells the session has run that it began with.
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
    /// Limits by their keys in the policy: seconds, bytes, counts.
    pub limits: BTreeMap<&'static str, f64>,
}

/// The interpreter of a session.
#[derive(Clone, Debug, Serialize)]
pub struct Python {
    /// The path of its executable.
    pub executable: String,
    /// `3.11.7`.
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
    /// The cell's limit on processor time in seconds, if it is not the policy's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<f64>,
    /// The cell's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Whether the value comes from a tool that ends cells.
    #[serde(rename = "final")]
    pub by_tool: bool,
    /// Whether the value is not to be displayed.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub quiet: bool,
    /// The state of the session after the cell.
    pub session: SessionState,
    /// How many cells the worker has run, this one included.
    pub execution_count: u64,
    /// The value's buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

/// Whether a session continues.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// Its worker waits for the next cell.
    Live,
    /// Its worker is gone, with its variables, imports and files.
    Ended,
}

/// What a session has at the moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Presence {
    /// A worker, which waits for the next cell.
    Live,
    /// No worker: it was not used for a while (`session.pause_after`), and its state lies on a disk.
    Paused,
    /// Nothing: it was over while it was paused.
    Ended,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileEntry {
    /// Its name, with U+FFFD in place of invalid UTF-8.
    pub name: String,
    /// `file`, `dir`, `symlink` or `other`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Size, bytes.
    pub size: u64,
    /// Time of the last write, seconds since 1970.
    pub modified: f64,
}

/// What happened in a watched directory, to an entry whose path starts at that directory. Invalid UTF-8 in it is U+FFFD.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "type", content = "path", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FileEvent {
    /// It was made, or moved here.
    Create(String),
    /// It was written to, or shortened.
    Write(String),
    /// It was removed.
    Remove(String),
    /// It was moved away from here. If it was moved to a watched directory, it is created there.
    Rename(String),
    /// Its mode, its times or other attributes were changed.
    Chmod(String),
    /// Events were lost, or there is more than can be watched: look at the whole directory again.
    Overflow,
}

impl FileEvent {
    /// The path of the entry. There is none if events were lost.
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

/// The kind of an error, in one word: that of an [`ErrorKind`], or one of its own.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct ErrorCode(&'static str);

impl ErrorCode {
    /// A file request failed.
    pub const FILE: Self = Self("file");
    /// The caller's message cannot be parsed, or comes at the wrong time.
    pub const PROTOCOL: Self = Self("protocol");
}

impl From<ErrorKind> for ErrorCode {
    fn from(kind: ErrorKind) -> Self {
        Self(kind.as_str())
    }
}

impl ClientEvent {
    /// The number of the request that it belongs to, if it names one.
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

    /// What the caller receives in place of an event that fits the worker's limits and exceeds those of
    /// a caller. `id` is the number of the request, if it had one.
    pub fn not_written(id: Option<u64>, error: &MessageError) -> Self {
        Self::Error {
            id,
            error: ErrorCode::PROTOCOL,
            message: format!("an answer could not be written: {error}"),
            errno: None,
            why: None,
        }
    }

    /// Appends the message's frame to `out`.
    ///
    /// # Errors
    ///
    /// If the header or the payload exceeds the limit.
    pub fn encode_into(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), MessageError> {
        encode_message(self, payload, &FrameLimits::TO_CALLER, out)
    }
}
