//! What a supervisor says to a caller.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Mapping, TaskLoss, TaskOutcome, Told};
use crate::outcome::{Enforced, PolicyIdentity};
use crate::protocol::message::{Display, MessageError, ToolCall, encode_message};
use crate::protocol::{Blob, FrameLimits, Value};

/// What a supervisor says.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Answer {
    /// The session stands.
    Opened(Box<Opened>),
    /// Output of a cell, which is the payload.
    Output {
        /// Of the cell.
        id: u64,
        /// `stdout` or `stderr`.
        stream: &'static str,
    },
    /// A cell shows something.
    Display(Display),
    /// A cell calls a host tool, and waits for [`Ask::Return`](super::Ask::Return).
    Call(ToolCall),
    /// A cell, or what is answered like one, ended.
    Outcome(Box<CellOutcome>),
    /// A file request is done; a descriptor comes along where it opened one.
    File {
        /// Of the request.
        id: u64,
        /// Bytes of a file that was opened for reading.
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        /// The entry that was asked for.
        #[serde(skip_serializing_if = "Option::is_none")]
        entry: Option<FileEntry>,
        /// The entries of a directory.
        #[serde(skip_serializing_if = "Option::is_none")]
        entries: Option<Vec<FileEntry>>,
    },
    /// The session has ended, and nothing of it is left; or a batch has.
    Closed,
    /// A batch has begun.
    Mapping(Mapping),
    /// A task was run. Its output came before, in [`Answer::Output`].
    Done(Box<TaskOutcome>),
    /// A task got no sandbox.
    Lost(TaskLoss),
    /// What was asked for was not done.
    Error {
        /// Of the request, where it had one.
        #[serde(skip_serializing_if = "Option::is_none")]
        id: Option<u64>,
        /// What kind of thing was wrong.
        error: ErrorWord,
        /// One sentence that names the thing and the remedy.
        message: String,
        /// errno(3), of a file request.
        #[serde(skip_serializing_if = "Option::is_none")]
        errno: Option<i32>,
    },
}

/// What a session stands on.
#[derive(Clone, Debug, Serialize)]
pub struct Opened {
    /// [`VERSION`](crate::protocol::VERSION).
    pub version: u32,
    /// What holds it.
    pub enforced: Enforced,
    /// Under which policy.
    pub policy: PolicyIdentity,
    /// Its interpreter.
    pub python: Python,
    /// Limits by their keys in the policy: seconds, bytes, counts.
    pub limits: BTreeMap<&'static str, f64>,
}

/// The interpreter of a session.
#[derive(Clone, Debug, Serialize)]
pub struct Python {
    /// Its program.
    pub executable: String,
    /// `3.11.7`.
    pub version: String,
    /// `sys.prefix`: the environment whose packages can be imported.
    pub environment: String,
}

/// How a cell ended.
#[derive(Clone, Debug, Serialize)]
pub struct CellOutcome {
    /// Of the request.
    pub id: u64,
    /// The outcome, without output, value, and what [`Opened`] told.
    pub outcome: Told,
    /// The cell's value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// Whether a tool that ends cells gave the value.
    #[serde(rename = "final")]
    pub by_tool: bool,
    /// What became of the session.
    pub session: SessionState,
    /// How many cells the worker has run, this one included.
    pub execution_count: u64,
    /// The value's buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

/// Whether a session goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SessionState {
    /// Its worker waits for the next cell.
    Live,
    /// Its worker is gone, with its variables, imports and files.
    Ended,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FileEntry {
    /// Its name, with U+FFFD for what is not UTF-8.
    pub name: String,
    /// `file`, `dir`, `symlink` or `other`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Bytes.
    pub size: u64,
    /// When it was last written, seconds since 1970.
    pub modified: f64,
}

/// What kind of thing was wrong, in one word.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum ErrorWord {
    /// The policy says something that cannot be.
    Policy,
    /// The policy cannot be kept on this host.
    Host,
    /// The interpreter is missing, unsuitable, or could not preload what the policy names.
    Interpreter,
    /// A layer did not hold.
    NotEnforced,
    /// The request cannot be done as it is.
    Request,
    /// A system call failed, or a process that was needed ended.
    System,
    /// A cell is running, or there is no room for another worker.
    Busy,
    /// The session's worker is gone.
    SessionEnded,
    /// A file request.
    File,
    /// The caller's message does not parse, or comes at the wrong time.
    Protocol,
}

impl Answer {
    /// Appends the message's frame to `out`.
    ///
    /// # Errors
    ///
    /// When the header or the payload is over the limit.
    pub fn encode_into(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), MessageError> {
        encode_message(self, payload, &FrameLimits::TO_CALLER, out)
    }
}
