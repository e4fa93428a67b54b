//! Runs untrusted Python in a fresh, sealed Linux sandbox.

pub mod host;
#[path = "jail/program.rs"]
pub mod program;
pub mod sys;
