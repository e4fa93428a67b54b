//! Every `unsafe` block and every raw system call of the project, one file per kernel facility.
//!
//! Nothing here decides anything, and nothing here imports from the rest of the crate.
#![allow(unsafe_code)]

pub mod probe_child;
pub mod support;
