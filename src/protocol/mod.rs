//! What crosses between a caller and its supervisor, and between the supervisor and a worker:
//! frames, their JSON headers, the messages.
//!
//! Everything here works on bytes in memory and does no I/O, so that the same code is tested by
//! properties, fuzzed, and driven by whatever event loop the caller has. The bytes of a worker are
//! hostile: each layer refuses before it allocates. `docs/protocol.md` is the description for
//! those who write the other end.

pub mod blob;
pub mod bounded;
pub mod caller;
pub mod frame;
pub mod message;
pub mod value;

pub use blob::{Blob, Way};
pub use bounded::{JsonError, JsonLimits};
pub use caller::{Answer, Ask};
pub use frame::{Decoder, Frame, FrameError, FrameLimits};
pub use message::{
    CellResult, Denied, Display, Ended, GuestError, MessageError, NamedError, Reply, Request,
    ToolAnswer, ToolCall, ToolDeclaration,
};
pub use value::Value;

/// Version of the protocol, carried by [`Request::Hello`] and [`Reply::Ready`].
///
/// Both ends come out of the same binary, so a difference is a bug and ends the session; nothing
/// is negotiated.
pub const VERSION: u32 = 2;
