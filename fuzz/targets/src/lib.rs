//! The fuzz targets, shared by two engines: cargo-fuzz's libFuzzer on nightly (`fuzz/fuzz_targets`)
//! and the one in [`engine`], for stable Rust (`cargo xtask fuzz`).
//!
//! A target takes any bytes, drives one reader of hostile input with them, and panics if a property
//! of that reader does not hold. It returns the reader's behaviour, by which an engine recognises
//! an input that takes a new path.

pub mod answers;
mod asks;
mod behaviour;
mod blobs;
pub mod engine;
mod frames;
mod policies;
mod replies;
mod seccomp;
mod source;
mod tasks;
mod values;

pub use behaviour::Behaviour;
pub use seccomp::{Difference, difference};

/// A reader of hostile input, with its fuzzing parameters.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line, and of the corpus's directory.
    pub name: &'static str,
    /// The origin of the bytes, and the properties that must hold.
    pub about: &'static str,
    /// Drives the reader. Panics if a property does not hold.
    pub run: fn(&[u8]) -> Behaviour,
    /// Dictionary words for the inputs.
    pub words: &'static [&'static str],
    /// How many inputs CI tries: about thirty seconds of them on one processor, unoptimized. A
    /// number and not a time, so that the result of CI does not depend on its speed.
    pub inputs: u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    frames::TARGET,
    replies::TARGET,
    asks::TARGET,
    values::TARGET,
    blobs::TARGET,
    policies::TARGET,
    tasks::TARGET,
    seccomp::TARGET,
];

impl Target {
    /// The target of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

/// Runs a target for cargo-fuzz.
///
/// # Panics
///
/// When a property does not hold.
pub fn run(name: &str, bytes: &[u8]) {
    let target = Target::find(name).unwrap_or_else(|| panic!("no target is called {name}"));
    (target.run)(bytes);
}
