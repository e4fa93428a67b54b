//! Runs untrusted Python in a fresh, sealed Linux sandbox.

// In reading order: what is allowed, what the host can do, what will therefore be done, ...
pub mod host;
pub mod plan;
pub mod policy;
pub mod policy_source;
// ... how a process does it to itself, ...
pub mod jail;
pub mod sys;
// ... how it is talked to, driven and watched, ...
pub mod protocol;
pub mod supervisor;
// ... and what the caller sees of it.
pub mod error;
pub mod exit_code;
pub mod outcome;
mod sandbox;

pub use error::{Error, ErrorKind};
pub use outcome::Outcome;
pub use policy::Policy;
pub use sandbox::{Sandbox, SandboxBuilder};
pub use supervisor::{Cancel, OutputSink, Request};
