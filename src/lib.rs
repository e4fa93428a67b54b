//! Runs untrusted Python in a fresh, sealed Linux sandbox.

#[path = "jail/program.rs"]
pub mod program;
pub mod protocol;

pub mod outcome;

pub mod exit_code;
