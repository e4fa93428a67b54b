//! Runs untrusted Python in a fresh, sealed Linux sandbox.

#[path = "jail/program.rs"]
pub mod program;

pub mod plan;
