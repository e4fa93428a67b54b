//! The messages between a supervisor and one worker.
//!
//! The supervisor sends a trusted [`Request`]. The worker sends a hostile [`Reply`], of which any field may
//! be false. A false field can only harm the worker's own run, because a reply has no field for time,
//! memory, enforcement or who ended the run.

mod reply;
mod request;
mod result;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use reply::{CopyPoint, Display, FailedStep, Reply, ToolCall};
pub use request::{
    AfterCell, Request, ResultMode, SourceKind, ToolAnswer, ToolDeclaration, Tools, Variables,
    WorkerMode, has_coding_line,
};
pub use result::{CellResult, Denied, Ended, Finish, GuestError};

use super::frame::encode_with;
use super::{Blob, Frame, FrameError, FrameLimits, JsonError};
use crate::outcome::value::ValueError;
use crate::outcome::value::blob::Transport;

/// The reason why a message was rejected.
#[derive(Clone, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum MessageError {
    /// The frame of the message is invalid.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// The header of the message is invalid.
    #[error(transparent)]
    Header(#[from] JsonError),
    /// The length of the payload differs from the header's.
    #[error("a message announces a payload of {wanted} bytes, but has one of {length}")]
    Payload {
        /// The actual length.
        length: usize,
        /// The length in the header.
        wanted: u64,
    },
    /// The values do not fit their buffers.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// An exception of a host tool, which is sent by name.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct NamedError {
    /// The name of the exception's class.
    pub name: String,
    /// The exception's `str()`.
    pub message: String,
    /// The nearest built-in base class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

impl NamedError {
    /// Creates an exception with this class name and message.
    pub fn new(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            message: message.into(),
            base: None,
        }
    }
}

/// Checks that the length of a frame's payload is the one that its header announces.
pub(super) fn check_payload(frame: &Frame, blob: Option<&Blob>) -> Result<(), MessageError> {
    let wanted = blob
        .filter(|blob| blob.transport() == Transport::Payload)
        .map_or(0, Blob::total);
    let length = frame.payload.len();
    if length as u64 == wanted {
        Ok(())
    } else {
        Err(MessageError::Payload { length, wanted })
    }
}

/// Appends a message's frame to `out`. Leaves `out` unchanged if the message exceeds `limits`.
pub(super) fn encode_message(
    message: &impl Serialize,
    payload: &[u8],
    limits: &FrameLimits,
    out: &mut Vec<u8>,
) -> Result<(), MessageError> {
    encode_with(payload, limits, out, |out| {
        let written = serde_json::to_writer(out, message);
        Ok(written.map_err(|error| JsonError::Invalid(error.to_string()))?)
    })
}
