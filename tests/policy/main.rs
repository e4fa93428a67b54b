//! Tests of policies from the user's point of view: files in, an effective policy or one error out.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod builtins;
mod changes;
mod documentation;
mod errors;
mod extends;
mod file_system;
mod merge_laws;
mod overrides;
mod robustness;
mod schema;
mod support;
mod values;
