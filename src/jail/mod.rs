//! The jail.

pub mod program;
