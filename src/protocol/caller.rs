//! The messages of the link between a caller and its supervisor: one session on each, or one batch.
//!
//! Both ends are trusted, but what an [`Answer`] quotes of the guest (values, displays, calls,
//! errors) is as hostile here as it was on the worker's link.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::Blob;
use super::message::{Last, Then, ToolAnswer, Tools, Variables};

mod answer;
mod batch;
mod parse;
mod told;

pub use answer::{Answer, CellOutcome, ErrorWord, FileEntry, Opened, Python, SessionState};
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
