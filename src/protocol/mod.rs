//! The protocol between a caller and its supervisor, and between the supervisor and a worker:
//! frames, their JSON headers, the messages.
//!
//! This module works on bytes in memory and does no I/O. The same code is therefore tested with
//! properties, fuzzed, and driven by any event loop of the caller. A worker's bytes are hostile:
//! each layer refuses before it allocates. `docs/protocol.md` describes the protocol for authors of
//! the other end.

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

/// Version of the protocol, carried by [`Request::Hello`] and [`Reply::Ready`].
///
/// Both ends come from the same binary, so a difference is a bug and ends the session. There is no
/// negotiation.
pub const VERSION: u32 = 2;

#[cfg(test)]
mod tests;
