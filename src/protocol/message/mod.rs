//! The messages between a supervisor and one worker.
//!
//! The supervisor sends [`Request`], which is trusted. The worker sends [`Reply`], which is
//! hostile: any of its fields may be false. Its shape ensures that a false field can only hurt its
//! own worker. It has no field for time, memory, enforcement or who ended a run.

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

/// Why a message was refused.
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
    #[error("a payload of {length} bytes follows a message that has one of {wanted}")]
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

/// An exception of a host tool, which crosses by name.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct NamedError {
    /// Name of the exception's class.
    pub name: String,
    /// `str()` of it.
    pub message: String,
    /// The builtin class that its class is derived from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
}

impl NamedError {
    /// An exception of this class and text.
    pub fn new(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            message: message.into(),
            base: None,
        }
    }
}

/// Checks that a frame's payload is the one that its header announces.
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

/// Appends a message's frame to `out`, which stays unchanged if the message exceeds `limits`.
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
