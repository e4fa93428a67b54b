//! The messages from the supervisor to a worker.

use serde::{Deserialize, Serialize};

use super::{MessageError, NamedError, encode_message};
use crate::protocol::{Blob, FrameLimits, Value};

/// A message from the supervisor to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Request {
    /// The first message. In a session it is followed by one byte that carries the descriptor of the socket over
    /// which programs are started.
    Hello {
        /// [`VERSION`](crate::protocol::VERSION).
        version: u32,
        /// The purpose of the worker.
        serves: WorkerMode,
    },
    /// Runs a rehearsal cell in a worker for the pool, before its first message. The rehearsal triggers most of
    /// the copy-on-write faults that would otherwise slow down the first cell.
    Rehearse {
        /// The purpose of the worker.
        serves: WorkerMode,
    },
    /// The first message to a worker that is restored from a snapshot. The payload is the order for the worker's
    /// native half. Bytes follow that carry one descriptor each: the socket of [`Hello`](Self::Hello), the memory
    /// images, the contents of the directories, and, once the worker is suspended, the restore steps.
    Restore {
        /// Repeated in the result.
        id: u64,
    },
    /// Suspends the worker while it is copied. The worker replies after [`GoOn`](Self::GoOn).
    Snapshot {
        /// Repeated in the result.
        id: u64,
    },
    /// Resumes the worker after it has been copied.
    GoOn,
    /// Runs the Python source in the payload.
    Cell {
        /// Repeated in the result.
        id: u64,
        /// The file name in tracebacks. The file need not exist.
        filename: String,
        /// `sys.argv[1:]`.
        argv: Vec<String>,
        /// The value that the cell returns.
        #[serde(default, skip_serializing_if = "is_default")]
        last: ResultMode,
        /// What the worker does after the cell. A worker for a single run ignores this field and exits.
        #[serde(default, skip_serializing_if = "is_default")]
        then: AfterCell,
        /// The kind of source, which decides its encoding.
        #[serde(default, skip_serializing_if = "is_default")]
        source: SourceKind,
        /// The terminal type (`TERM`) of a single run that gets a terminal, as for [`Exec`](Self::Exec).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
    },
    /// Runs a program in the sandbox and reports how it ended.
    Exec {
        /// Repeated in the result.
        id: u64,
        /// The program, which is looked up in the guest's `PATH`, and its arguments. Never empty.
        argv: Vec<String>,
        /// The terminal type (`TERM`), if the program gets a terminal. Standard input then carries records of
        /// typed input and of the terminal's size.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terminal: Option<String>,
    },
    /// Defines variables in `__main__`.
    Set(Variables),
    /// Defines host tools.
    Tools(Tools),
    /// The reply to a call of a host tool.
    Return(ToolAnswer),
}

/// Variables to define. Both a caller and the supervisor send this message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variables {
    /// Repeated in the reply.
    pub id: u64,
    /// Names and values, in order.
    #[serde(rename = "variables")]
    pub pairs: Vec<(String, Value)>,
    /// The buffers of the values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

/// Host tools to define. Both a caller and the supervisor send this message.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Tools {
    /// Repeated in the reply.
    pub id: u64,
    /// The tools.
    pub tools: Vec<ToolDeclaration>,
}

/// The purpose of a worker.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerMode {
    /// One cell or program, after which the worker exits.
    #[default]
    OneRun,
    /// Any number of cells.
    Session,
}

fn is_default<T: Default + PartialEq>(field: &T) -> bool {
    *field == T::default()
}

/// The value that a cell returns.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ResultMode {
    /// The value of the last statement if it is an expression, as in a notebook.
    #[default]
    Expression,
    /// The value of the last statement, including an assignment: `x = 3` gives 3.
    Statement,
    /// The `repr` of the value of [`Self::Expression`]. The guest keeps the value as `_`, like Python's prompt.
    Text,
    /// The value of [`Self::Expression`]. The guest also displays the `repr` of every such value, as a notebook
    /// does, even if plain text represents it fully.
    Notebook,
    /// No value. The value of a last expression is dropped.
    Nothing,
}

/// The kind of a cell's source, which decides its encoding.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SourceKind {
    /// The bytes of a file: UTF-8, or the encoding of its coding line (PEP 263).
    #[default]
    File,
    /// Text: always UTF-8. A coding line has no effect.
    Text,
}

/// Returns whether one of the first two lines of a source may declare an encoding (PEP 263), which the guest's Python
/// interprets.
pub fn has_coding_line(source: &[u8]) -> bool {
    let mut lines = source.split(|byte| *byte == b'\n').take(2);
    lines.any(|line| line.contains(&b'#') && line.windows(6).any(|word| word == b"coding"))
}

/// The action of a session's worker after a cell.
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
    /// The name in the guest, a Python identifier.
    pub name: String,
    /// The docstring.
    #[serde(default)]
    pub doc: String,
    /// The signature in the notation of `inspect.signature`, or empty.
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
    /// The return value of the tool. An absent field means `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The exception that the tool raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<NamedError>,
    /// The buffers of the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

impl ToolAnswer {
    /// Creates the result of a call that raised an exception.
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
    /// If the header or the payload exceeds its limit, for example a script of many megabytes.
    pub fn encode_into(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), MessageError> {
        encode_message(self, payload, &FrameLimits::TO_WORKER, out)
    }
}
