//! The messages of the link between a supervisor and one worker.
//!
//! [`Request`] goes in and is ours; [`Reply`] comes out and is hostile: any of its fields may be a
//! lie. It is therefore shaped so that a lie can only hurt the worker that tells it: there is no
//! field for time, memory, enforcement or who ended a run.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::frame::encode_into;
use super::{Frame, FrameError, FrameLimits, JsonError, JsonLimits, Value};

/// What the supervisor says to a worker.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Request {
    /// The first message.
    Hello {
        /// [`VERSION`](super::VERSION).
        version: u32,
    },
    /// Run Python source, which is the payload.
    Cell {
        /// Repeated in the result.
        id: u64,
        /// Name shown in tracebacks; not a file that has to exist.
        filename: String,
        /// `sys.argv[1:]`.
        argv: Vec<String>,
    },
    /// Run a program of the sandbox and report how it ended.
    Exec {
        /// Repeated in the result.
        id: u64,
        /// Program, looked up in the guest's `PATH`, and its arguments. Never empty.
        argv: Vec<String>,
    },
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

/// What a worker says to its supervisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Reply {
    /// The jail is closed and the worker waits for a cell. Once, and first.
    Ready {
        /// [`VERSION`](super::VERSION).
        version: u32,
    },
    /// A cell or a program ended by itself.
    Result(CellResult),
}

impl Reply {
    /// Understands a frame of a worker.
    ///
    /// # Errors
    ///
    /// When the header is over a bound, of an unknown kind, or lacks what its kind needs. Each is
    /// a protocol violation and ends the session.
    pub fn parse(frame: &Frame) -> Result<Self, MessageError> {
        let reply = JsonLimits::FROM_WORKER.from_slice(&frame.header)?;
        if !frame.payload.is_empty() {
            return Err(MessageError::UnexpectedPayload {
                length: frame.payload.len(),
            });
        }
        Ok(reply)
    }

    /// Appends the message's frame to `out`: the worker's side, used by tests.
    pub fn encode_into(&self, out: &mut Vec<u8>) -> Result<(), MessageError> {
        encode_message(self, &[], &FrameLimits::FROM_WORKER, out)
    }
}

/// How a cell or a program ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ResultFields", into = "ResultFields")]
#[non_exhaustive]
pub struct CellResult {
    /// Of the request.
    pub id: u64,
    /// What the guest says happened.
    pub ended: Ended,
    /// Operations that raised a permission error and that the guest's side noticed.
    pub denied: Vec<Denied>,
}

impl CellResult {
    /// A result without denied operations.
    pub const fn new(id: u64, ended: Ended) -> Self {
        Self {
            id,
            ended,
            denied: Vec::new(),
        }
    }
}

/// The ways in which guest code ends by itself.
#[derive(Clone, Debug, PartialEq)]
pub enum Ended {
    /// It ran to its end, with the value of its last expression if that is not `None`.
    Ok(Option<Value>),
    /// An exception was not caught, or a program could not be started.
    Exception(GuestError),
    /// `sys.exit`, or a program's exit status.
    Exit(u8),
}

/// An exception as the guest describes it.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize, Deserialize)]
pub struct GuestError {
    /// Name of the exception's class.
    pub name: String,
    /// `str()` of the exception.
    pub message: String,
    /// As Python prints it, guest frames only.
    #[serde(default)]
    pub traceback: String,
    /// `errno` of an `OSError`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// One operation that was refused, as the guest's side saw it.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct Denied {
    /// What was tried: `file access`, or `system call` where no file is named.
    pub operation: String,
    /// On what: a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The error that the guest got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<i32>,
}

/// [`CellResult`] as it is written.
#[derive(Serialize, Deserialize)]
struct ResultFields {
    id: u64,
    status: ResultStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<GuestError>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    denied: Vec<Denied>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ResultStatus {
    Ok,
    Exception,
    Exit,
}

impl TryFrom<ResultFields> for CellResult {
    type Error = &'static str;

    fn try_from(fields: ResultFields) -> Result<Self, Self::Error> {
        let ended = match fields.status {
            ResultStatus::Ok => Ended::Ok(fields.value),
            ResultStatus::Exception => {
                Ended::Exception(fields.error.ok_or("an exception without `error`")?)
            }
            ResultStatus::Exit => {
                Ended::Exit(fields.exit_code.ok_or("an exit without `exit_code`")?)
            }
        };
        Ok(Self {
            id: fields.id,
            ended,
            denied: fields.denied,
        })
    }
}

impl From<CellResult> for ResultFields {
    fn from(result: CellResult) -> Self {
        let CellResult { id, ended, denied } = result;
        let (status, exit_code, value, error) = match ended {
            Ended::Ok(value) => (ResultStatus::Ok, None, value, None),
            Ended::Exception(error) => (ResultStatus::Exception, None, None, Some(error)),
            Ended::Exit(code) => (ResultStatus::Exit, Some(code), None, None),
        };
        Self {
            id,
            status,
            exit_code,
            value,
            error,
            denied,
        }
    }
}

/// Why a message was refused.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum MessageError {
    /// The frame around it.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Its header.
    #[error(transparent)]
    Header(#[from] JsonError),
    /// A payload where the kind has none.
    #[error("a payload of {length} bytes follows a message that has none")]
    UnexpectedPayload {
        /// How long it is.
        length: usize,
    },
}

fn encode_message(
    message: &impl Serialize,
    payload: &[u8],
    limits: &FrameLimits,
    out: &mut Vec<u8>,
) -> Result<(), MessageError> {
    let header =
        serde_json::to_vec(message).map_err(|error| JsonError::Invalid(error.to_string()))?;
    Ok(encode_into(&header, payload, limits, out)?)
}
