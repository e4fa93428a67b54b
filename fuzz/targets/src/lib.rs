//! The fuzz targets. cargo-fuzz runs them on nightly (`fuzz/fuzz_targets`), and `tests/fuzz` runs them on
//! stable Rust (`cargo xtask fuzz`).
//!
//! A target takes any bytes, passes them to one parser of untrusted input, and panics if a property
//! of that parser does not hold.

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

/// A parser of untrusted input.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// The name on the command line and of the corpus directory.
    pub name: &'static str,
    /// Returns whether the parser accepts the input. Panics if a property does not hold.
    pub run: fn(&[u8]) -> bool,
    /// The number of inputs that CI tries, which take about three seconds on one CPU. It is not a time, so that
    /// the result of CI does not depend on its speed.
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
    /// Returns the target with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        TARGETS.iter().find(|target| target.name == name)
    }
}

/// Runs a target for cargo-fuzz.
///
/// # Panics
///
/// Panics if a property does not hold.
pub fn run(name: &str, bytes: &[u8]) {
    let target = Target::find(name).unwrap_or_else(|| panic!("no target is called {name}"));
    (target.run)(bytes);
}
