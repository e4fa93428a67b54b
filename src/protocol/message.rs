//! The messages of the link between a supervisor and one worker.
//!
//! [`Request`] goes in and is ours; [`Reply`] comes out and is hostile: any of its fields may be a
//! lie. It is therefore shaped so that a lie can only hurt the worker that tells it: there is no
//! field for time, memory, enforcement or who ended a run.

mod reply;
mod request;
mod result;

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use reply::{Display, Reply, ToolCall};
pub use request::{Last, Request, Serves, Then, ToolAnswer, ToolDeclaration, Tools, Variables};
pub use result::{CellResult, Denied, Ended, Finish, GuestError};

use super::frame::encode_with;
use super::{Blob, Frame, FrameError, FrameLimits, JsonError};
use crate::protocol::blob::Way;
use crate::protocol::value::ValueError;

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
    /// A payload that is not as long as the header says.
    #[error("a payload of {length} bytes follows a message that has one of {wanted}")]
    Payload {
        /// How long it is.
        length: usize,
        /// What the header says.
        wanted: u64,
    },
    /// Values that do not fit their buffers.
    #[error(transparent)]
    Value(#[from] ValueError),
}

/// An exception that crosses by name: what a host tool raised.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
pub struct NamedError {
    /// Name of the exception's class.
    pub name: String,
    /// `str()` of it.
    pub message: String,
}

impl NamedError {
    /// An exception of this class and text.
    pub fn new(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            message: message.into(),
        }
    }
}

/// Checks that a frame's payload is what its header says.
pub(super) fn check_payload(frame: &Frame, blob: Option<&Blob>) -> Result<(), MessageError> {
    let wanted = blob
        .filter(|blob| blob.way() == Way::Payload)
        .map_or(0, Blob::total);
    let length = frame.payload.len();
    if length as u64 == wanted {
        Ok(())
    } else {
        Err(MessageError::Payload { length, wanted })
    }
}

/// Appends a message's frame to `out`, which is left alone when the message is over `limits`.
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
