//! Runs untrusted Python in a fresh, sealed Linux sandbox.
//!
//! ```no_run
//! let sandbox = sandfork::Sandbox::builder().build()?;
//! let outcome = sandbox.run("print(6 * 7)")?;
//! assert_eq!(outcome.stdout(), "42\n");
//! println!("{} under {}", outcome.status(), outcome.enforced());
//! # Ok::<(), sandfork::Error>(())
//! ```
//!
//! A [`Sandbox`] keeps one warm CPython and forks it for each run. Build it once and share it between
//! threads. An [`Error`] means that no sandbox could be provided. Everything that the guest does, an
//! endless loop and a segmentation fault included, is an [`Outcome`]. `README.md` shows the command;
//! `examples/` has a custom policy, a server and a session.
//!
//! | to | use |
//! |---|---|
//! | run code in a sandbox | [`Sandbox`], made by a [`SandboxBuilder`] for a [`Lifetime`] with a [`CallerEnvironment`] |
//! | pass files, input, limits | [`Request`] with [`GuestPath`], [`Cancel`] and [`OutputSink`] |
//! | decide what a guest may do | [`Policy`], from a built-in or from a [`FileSystem`] ([`PolicySource`]), with [`Override`]s |
//! | read how a run ended | [`Outcome`]: [`Status`], [`Ending`], [`LimitHit`], [`ExceptionInfo`], [`Value`] |
//! | read what it used and tried | [`Usage`], [`Phases`], [`Denial`] |
//! | read what held it | [`Enforced`]: a [`Level`] and its [`Layer`]s |
//! | decide what to do without a sandbox | [`ErrorKind`], [`PolicyError`] |
//! | keep variables from cell to cell, and offer tools to the guest | [`session`] |
//! | run many tasks | [`batch`] |
//! | bound how many run at once | [`Admission`], [`Capacity`] |
//!
//! Guest code runs only in a worker that the supervisor has checked from outside. No layer is dropped
//! silently. No message of a worker decides how its run ended. `SECURITY.md` explains what this protects
//! against, and [ARCHITECTURE.md] how the library works inside.
//!
//! [ARCHITECTURE.md]: https://github.com/sandfork/sandfork/blob/main/ARCHITECTURE.md

#![cfg_attr(
    not(feature = "internals"),
    warn(unnameable_types),
    allow(unused_imports, reason = "a module also names what only tests use")
)]

mod admission;
pub mod batch;
mod capacity;
mod cli;
mod environments;
mod error;
mod host;
#[cfg(feature = "internals")]
#[doc(hidden)]
pub mod internals;
mod outcome;
mod plan;
mod policy;
mod policy_source;
mod protocol;
mod sandbox;
mod serve;
pub mod session;
mod supervisor;
mod waiters;

// The API: `tests/public-api.txt` lists it, and a test compares.
pub use admission::Admission;
pub use capacity::Capacity;
#[doc(hidden)]
pub use cli::command;
pub use error::{Error, ErrorKind};
pub use host::CallerEnvironment;
pub use outcome::value::Value;
pub use outcome::{
    Denial, Ending, Enforced, ExceptionInfo, JailSteps, Layer, Level, LimitHit, LimitName,
    Mechanism, Outcome, Phases, PolicyIdentity, Reporter, Status, Usage,
};
pub use policy::{Override, Policy, PolicyError, PolicySource};
pub use policy_source::FileSystem;
pub use sandbox::{Sandbox, SandboxBuilder};
pub use sandfork_jail::control::Lifetime;
pub use supervisor::files::GuestPath;
pub use supervisor::{Cancel, OutputSink, Request};

/// The Rust of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The Rust of the page on Rust compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/rust.md")]
struct Rust;

/// The Rust of the page on batches compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/batch.md")]
struct Batches;
