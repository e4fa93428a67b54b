//! The messages from the supervisor to a worker.

use serde::{Deserialize, Serialize};

use super::{MessageError, NamedError, encode_message};
use crate::protocol::{Blob, FrameLimits, Value};

/// A message from the supervisor to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Request {
    /// The first message. In a session a byte follows, with the descriptor of the socket over which programs are
    /// started.
    Hello {
        /// [`VERSION`](crate::protocol::VERSION).
        version: u32,
        /// The purpose of the worker.
        serves: WorkerMode,
    },
    /// Sent before the first message to a worker that will wait: run a rehearsal cell, so that the
    /// memory that a first cell writes to has already been copied when that cell comes.
    Rehearse {
        /// The purpose of the worker.
        serves: WorkerMode,
    },
    /// The first message to a worker that takes on the state of another. The order for its native half is the
    /// payload. Bytes follow, each with a descriptor: that of [`Hello`](Self::Hello), the files of the memory, the contents of the
    /// directories, and when the worker stands, the steps.
    Restore {
        /// Repeated in the result.
        id: u64,
    },
    /// Stand while the worker is copied, and answer after [`GoOn`](Self::GoOn).
    Snapshot {
        /// Repeated in the result.
        id: u64,
    },
    /// The copy is made.
    GoOn,
    /// Run Python source, which is the payload.
    Cell {
        /// Repeated in the result.
        id: u64,
        /// Name shown in tracebacks; not a file that has to exist.
        filename: String,
        /// `sys.argv[1:]`.
        argv: Vec<String>,
        /// Which value the cell returns.
        #[serde(default, skip_serializing_if = "is_default")]
        last: ResultMode,
        /// What the worker does after the cell. A worker for a single run ignores it and ends.
        #[serde(default, skip_serializing_if = "is_default")]
        then: AfterCell,
        /// What the source is.
        #[serde(default, skip_serializing_if = "is_default")]
        source: SourceKind,
        /// The only program of a worker may have a terminal of its own, as a program of [`Exec`](Self::Exec).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
    },
    /// Run a program of the sandbox and report how it ended.
    Exec {
        /// Repeated in the result.
        id: u64,
        /// Program, looked up in the guest's `PATH`, and its arguments. Never empty.
        argv: Vec<String>,
        /// The program gets a terminal of its own, and this is its kind (`TERM`). Standard input then
        /// carries records: what is typed, and the terminal's size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
    },
    /// Define variables of `__main__`.
    Set(Variables),
    /// Define host tools.
    Tools(Tools),
    /// The answer to a call of a host tool.
    Return(ToolAnswer),
}

/// Variables to define, from a caller or to its worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variables {
    /// Repeated in the answer.
    pub id: u64,
    /// Names and values, in order.
    #[serde(rename = "variables")]
    pub pairs: Vec<(String, Value)>,
    /// The values' buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

/// Host tools to define, from a caller or to its worker.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Tools {
    /// Repeated in the answer.
    pub id: u64,
    /// The tools.
    pub tools: Vec<ToolDeclaration>,
}

/// The purpose of a worker.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerMode {
    /// One cell or program. The worker ends with it.
    #[default]
    OneRun,
    /// Any number of cells.
    Session,
}

fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

/// Which value a cell returns.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResultMode {
    /// The value of the last statement if it is an expression, as in a notebook.
    #[default]
    Expression,
    /// The value of the last statement, including an assignment: `x = 3` gives 3.
    Statement,
    /// The `repr` of the value that [`Self::Expression`] gives, which the guest keeps as `_`, as Python's
    /// prompt does.
    Text,
    /// As [`Self::Expression`], and the guest displays the `repr` of each such value, as a notebook does: also of one that
    /// text shows sufficiently.
    Notebook,
    /// No value: that of a last expression is dropped.
    Nothing,
}

/// What the source of a cell is, which decides its encoding.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// The bytes of a file: UTF-8, or the encoding of its coding line (PEP 263).
    #[default]
    File,
    /// Text: UTF-8, and a coding line in it means nothing.
    Text,
}

/// Whether one of the first two lines of a source may name an encoding (PEP 263). The guest's Python reads it.
pub fn has_coding_line(source: &[u8]) -> bool {
    let mut lines = source.split(|byte| *byte == b'\n').take(2);
    lines.any(|line| line.contains(&b'#') && line.windows(6).any(|word| word == b"coding"))
}

/// What a session's worker does after a cell.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AfterCell {
    /// The worker waits for the next cell.
    #[default]
    Stay,
    /// The worker waits for its threads, runs the registered exit functions, and exits, as an
    /// interpreter does after a script.
    End,
}

/// A function of the caller that the guest may call.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct ToolDeclaration {
    /// Its name in the guest: a Python identifier.
    pub name: String,
    /// Its `__doc__`.
    #[serde(default)]
    pub doc: String,
    /// Its signature as text, as `inspect.signature` writes it, or empty.
    #[serde(default)]
    pub signature: String,
    /// Whether the tool's return value ends the cell.
    #[serde(default)]
    pub ends_cell: bool,
}

/// The result of a call of a host tool: a value, or an exception.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// The number of the call.
    pub call: u64,
    /// The tool's return value. `None` also if the field is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The exception that the tool raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<NamedError>,
    /// The value's buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

impl ToolAnswer {
    /// An answer with an exception.
    pub const fn raising(call: u64, error: NamedError) -> Self {
        Self {
            call,
            value: None,
            error: Some(error),
            blob: None,
        }
    }
}

impl Request {
    /// Appends the message's frame to `out`.
    ///
    /// # Errors
    ///
    /// If the header or the payload exceeds the limit, as with a script of many megabytes.
    pub fn encode_into(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), MessageError> {
        encode_message(self, payload, &FrameLimits::TO_WORKER, out)
    }
}
