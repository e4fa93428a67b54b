//! What fuzzing runs, once for both engines: cargo-fuzz's libFuzzer on nightly (`fuzz/fuzz_targets`) and
//! the one in [`engine`], for which stable Rust is enough (`cargo xtask fuzz`).
//!
//! A target takes any bytes, drives one reader of hostile input with them, and panics where a property
//! of that reader does not hold. What it returns says how the reader answered, by which an engine knows
//! an input that goes a new way.

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

/// A reader of hostile input, and what is run with it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// As on the command line, and of the directory of its corpus.
    pub name: &'static str,
    /// Whose bytes they are, and what must hold.
    pub about: &'static str,
    /// Drives the reader. Panics where a property does not hold.
    pub run: fn(&[u8]) -> Behaviour,
    /// What the inputs are made of.
    pub words: &'static [&'static str],
    /// How many inputs CI tries: about thirty seconds of them on one processor, unoptimized. A number
    /// and not a time, so that whether CI is green does not depend on how fast it is.
    pub inputs: u64,
}

/// All of them.
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
    /// The one of this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

/// What cargo-fuzz runs.
///
/// # Panics
///
/// When a property does not hold.
pub fn run(name: &str, bytes: &[u8]) {
    let target = Target::find(name).unwrap_or_else(|| panic!("no target is called {name}"));
    (target.run)(bytes);
}
