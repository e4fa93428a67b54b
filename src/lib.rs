//! Runs untrusted Python in a fresh, sealed Linux sandbox.

pub mod policy;
pub mod policy_source;

pub mod host;

pub mod plan;

pub mod jail;
pub mod sys;
