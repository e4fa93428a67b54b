//! Implements the protocols between a caller and its supervisor, and between the supervisor and a
//! worker: frames, their JSON headers, and the messages.
//!
//! This module works on bytes in memory and does no I/O, so that property tests, fuzzers and any event
//! loop can drive it. A worker's bytes are hostile: each layer rejects invalid input before it
//! allocates. `docs/protocol.md` describes the protocols for authors of other implementations.

pub mod caller;
pub mod frame;
pub mod message;

pub use crate::outcome::value::{Blob, JsonError, JsonLimits, Transport, Value};
pub use caller::{ClientEvent, ClientRequest};
pub use frame::{Decoder, Frame, FrameError, FrameLimits};
pub use message::{
    CellResult, Denied, Display, Ended, GuestError, MessageError, NamedError, Reply, Request,
    ToolAnswer, ToolCall, ToolDeclaration,
};

/// The protocol version, which [`Request::Hello`] and [`Reply::Ready`] carry.
///
/// Both ends come from the same binary, so a mismatch is a bug and ends the session. Versions are not
/// negotiated.
pub const VERSION: u32 = 2;

#[cfg(test)]
mod tests;
