//! What the supervisor says to a worker.

use serde::{Deserialize, Serialize};

use super::{MessageError, NamedError, encode_message};
use crate::protocol::{Blob, FrameLimits, Value};

/// What the supervisor says to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Request {
    /// The first message.
    Hello {
        /// [`VERSION`](crate::protocol::VERSION).
        version: u32,
        /// What the worker is for.
        serves: Serves,
    },
    /// Before the first message, to a worker that is to wait: run something that is nobody's, so that
    /// the memory that a first cell writes to has been copied by the time that one comes.
    Rehearse {
        /// What the worker will be for.
        serves: Serves,
    },
    /// Run Python source, which is the payload.
    Cell {
        /// Repeated in the result.
        id: u64,
        /// Name shown in tracebacks; not a file that has to exist.
        filename: String,
        /// `sys.argv[1:]`.
        argv: Vec<String>,
        /// What its value is.
        #[serde(default, skip_serializing_if = "Last::is_default")]
        last: Last,
        /// What the worker does after it; one that serves a single run ends whatever this says.
        #[serde(default, skip_serializing_if = "Then::is_default")]
        then: Then,
    },
    /// Run a program of the sandbox and report how it ended.
    Exec {
        /// Repeated in the result.
        id: u64,
        /// Program, looked up in the guest's `PATH`, and its arguments. Never empty.
        argv: Vec<String>,
    },
    /// Define variables of `__main__`.
    Set(Variables),
    /// Define host tools.
    Tools(Tools),
    /// The answer to a call of a host tool.
    Return(ToolAnswer),
}

/// Variables to define: what a caller says, and what its worker is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Variables {
    /// Repeated in the answer.
    pub id: u64,
    /// Names and values, in order.
    pub variables: Vec<(String, Value)>,
    /// The values' buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

/// Host tools to define: what a caller says, and what its worker is told.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Tools {
    /// Repeated in the answer.
    pub id: u64,
    /// Which.
    pub tools: Vec<ToolDeclaration>,
}

/// What a worker is for.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Serves {
    /// One cell or program, at whose end it ends.
    #[default]
    OneRun,
    /// Cell after cell.
    Session,
}

/// What the value of a cell is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Last {
    /// That of its last statement if it is an expression, as in a notebook.
    #[default]
    Expression,
    /// That of its last statement also where it assigns: `x = 3` gives 3.
    Statement,
}

impl Last {
    // serde passes a field by reference, however small it is.
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a session's worker does after a cell.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Then {
    /// Waits for the next.
    #[default]
    Stay,
    /// Waits for its threads, runs what was registered for the exit, and exits, as an interpreter
    /// does after a script.
    End,
}

impl Then {
    #[allow(clippy::trivially_copy_pass_by_ref)]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// A function of the caller's that the guest may call.
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
    /// Whether the cell ends with what it returns.
    #[serde(default)]
    pub ends_cell: bool,
}

/// What a call of a host tool gave: a value, or an exception.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolAnswer {
    /// The number of the call.
    pub call: u64,
    /// What the tool returned; `None` too where this is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// What it raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<NamedError>,
    /// The value's buffers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob: Option<Blob>,
}

impl ToolAnswer {
    /// An exception.
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
    /// When the header or the payload is over the limit, as a script of many megabytes is.
    pub fn encode_into(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), MessageError> {
        encode_message(self, payload, &FrameLimits::TO_WORKER, out)
    }
}
