//! Runs untrusted Python in a fresh, sealed Linux sandbox.

pub mod policy;
pub mod policy_source;

pub mod host;

pub mod plan;

pub mod jail;
pub use jail::program;
pub mod sys;

pub mod protocol;

pub mod supervisor;

pub mod outcome;

pub mod exit_code;
