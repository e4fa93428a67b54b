//! Parses a caller's frames.

use serde::Deserialize;

use super::ClientRequest;
use crate::protocol::message::{MessageError, check_payload};
use crate::protocol::{Frame, JsonLimits};

/// The kinds of messages that are frequent or carry many values. For a tagged enum, serde would first buffer all
/// members of the message in a tree.
#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Cell,
    Set,
    Return,
    Task,
    #[serde(other)]
    Other,
}

impl ClientRequest {
    /// Parses a caller's frame.
    ///
    /// # Errors
    ///
    /// If the header exceeds a limit, has an unknown kind or lacks a required member.
    pub fn parse(frame: &Frame) -> Result<Self, MessageError> {
        let header = JsonLimits::FROM_CALLER.tagged(&frame.header)?;
        let request = match header.kind {
            Kind::Cell => Self::Cell(header.members()?),
            Kind::Set => Self::Set(header.members()?),
            Kind::Return => Self::Return(header.members()?),
            Kind::Task => Self::Task(header.members()?),
            Kind::Other => header.members()?,
        };
        if !matches!(request, Self::Cell(_) | Self::Task(_) | Self::Input { .. }) {
            check_payload(frame, request.blob())?;
        }
        Ok(request)
    }
}
