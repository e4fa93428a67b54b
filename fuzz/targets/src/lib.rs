//! The fuzz targets: cargo-fuzz runs them on nightly (`fuzz/fuzz_targets`), and `tests/fuzz` runs them on
//! stable Rust (`cargo xtask fuzz`).
//!
//! A target takes any bytes, drives one reader of hostile input with them, and panics if a property
//! of that reader does not hold.

mod asks;
mod blobs;
mod frames;
mod network;
mod packages;
mod policies;
mod replies;
mod seccomp;
mod snapshots;
mod source;
mod tasks;
mod values;

pub use seccomp::{Difference, difference};

/// A reader of hostile input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line, and of the corpus's directory.
    pub name: &'static str,
    /// Whether the reader accepts the input. Panics if a property does not hold.
    pub run: fn(&[u8]) -> bool,
    /// How many inputs CI tries: about three seconds of them on one processor. A number and not a
    /// time, so that the result of CI does not depend on its speed.
    pub inputs: u64,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    frames::TARGET,
    network::TARGET,
    replies::TARGET,
    asks::TARGET,
    values::TARGET,
    blobs::TARGET,
    packages::TARGET,
    policies::TARGET,
    snapshots::TARGET,
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
