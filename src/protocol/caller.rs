//! The messages of the link between a caller and its supervisor: one session on each, or one batch.
//!
//! Both ends are trusted, but what an [`Answer`] quotes of the guest (values, displays, calls,
//! errors) is as hostile here as it was on the worker's link.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::message::{
    Display, Last, MessageError, Then, ToolAnswer, ToolCall, Tools, Variables, encode_message,
};
use super::{Blob, FrameLimits, Value};
use crate::outcome::{Enforced, PolicyIdentity};

mod batch;
mod parse;
mod told;

pub use batch::{Mapping, OpenBatch, TaskHeader, TaskLoss, TaskOrder, TaskOutcome};
pub use told::Told;

/// What a caller says.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Ask {
    /// The first message: under which policy. Answered by [`Answer::Opened`].
    Open(Box<Open>),
    /// Run Python source, which is the payload. Answered by [`Answer::Outcome`], as the next two are.
    Cell(Cell),
    /// Define variables.
    Set(Variables),
    /// Define host tools.
    Tools(Tools),
    /// What a call gave. Not answered.
    Return(ToolAnswer),
    /// Interrupt the cell that runs. Not answered: its outcome says how it ended.
    Interrupt,
    /// End the worker and start another. Answered by [`Answer::Opened`].
    Restart {
        /// Repeated in an error.
        id: u64,
    },
    /// Something with the session's files. Answered by [`Answer::File`].
    File(FileRequest),
    /// End the session. Answered by [`Answer::Closed`].
    Close,
    /// The first message of a batch. Answered by [`Answer::Mapping`].
    Map(Box<OpenBatch>),
    /// A task of a batch: the payload is a line as `sandfork map` reads it. Answered by
    /// [`Answer::Done`] or [`Answer::Lost`], or by an error, which ends the batch.
    Task(TaskHeader),
    /// No task of the batch follows. Answered by [`Answer::Closed`], behind the last result.
    End,
}

/// What a session is to be.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Open {
    /// [`VERSION`](super::VERSION).
    pub version: u32,
    /// The policy.
    pub policy: PolicyChoice,
    /// Keys of the policy that are other than it says: `limits.wall=2s`.
    #[serde(default)]
    pub set: Vec<String>,
    /// How the caller's environment differs from the supervisor's: a value, or nothing where it
    /// lacks the variable.
    #[serde(default)]
    pub environ: BTreeMap<String, Option<String>>,
    /// Whether the time in which a host tool runs counts.
    #[serde(default)]
    pub tool_time: ToolTime,
    /// Whether a descriptor comes along that is the guest's standard input.
    #[serde(default)]
    pub stdin: bool,
}

/// A policy by its name or path, or its text.
#[derive(Clone, Debug, Eq, Hash, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum PolicyChoice {
    /// The text of a policy file.
    Text {
        /// The text.
        toml: String,
        /// What its relative paths are relative to.
        directory: PathBuf,
        /// What to call it.
        #[serde(default, alias = "name")]
        label: Option<String>,
    },
    /// A built-in policy, or a file.
    Name {
        /// Its name or path.
        name: String,
        /// What a relative path is relative to, if not the supervisor's working directory.
        #[serde(default)]
        directory: Option<PathBuf>,
    },
}

/// Whether the wall clock of a cell goes on while the host answers a call.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ToolTime {
    /// It stands still: the time is the host's, not the guest's.
    #[default]
    Excluded,
    /// It goes on.
    Counted,
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
    /// What its value is.
    #[serde(default)]
    pub last: Last,
    /// What happens after it.
    #[serde(default)]
    pub then: Then,
    /// Whether output is sent as it comes, and not right before the outcome.
    #[serde(default)]
    pub stream: bool,
    /// Seconds on the clock, instead of `limits.wall`.
    #[serde(default)]
    pub wall: Option<f64>,
}

/// Something with a file of the session.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct FileRequest {
    /// Repeated in the answer.
    pub id: u64,
    /// Beneath the work directory.
    pub path: String,
    /// What.
    #[serde(flatten)]
    pub op: FileOperation,
}

/// What is done with a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
#[non_exhaustive]
pub enum FileOperation {
    /// A descriptor to read it comes with the answer.
    OpenRead,
    /// A descriptor to write it comes with the answer.
    OpenWrite {
        /// Whether what it holds stays.
        #[serde(default)]
        append: bool,
    },
    /// The entries of a directory.
    List,
    /// One entry.
    Stat,
    /// Removes it.
    Remove {
        /// Whether a directory goes with what it holds.
        #[serde(default)]
        recursive: bool,
    },
    /// Makes a directory.
    MakeDir {
        /// Whether those above it are made too, and one that is there is no error.
        #[serde(default)]
        parents: bool,
    },
}

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
    /// A cell calls a host tool, and waits for [`Ask::Return`].
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
    /// [`VERSION`](super::VERSION).
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

impl Ask {
    /// The buffers that come with it.
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
            | Self::Restart { id } => Some(*id),
            Self::Open(_)
            | Self::Map(_)
            | Self::Return(_)
            | Self::Interrupt
            | Self::End
            | Self::Close => None,
        }
    }
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
