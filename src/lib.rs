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
//! A [`Sandbox`] keeps one warm CPython and forks it for each run. Build a `Sandbox` once and share it between threads.
//! An [`Error`] means that Sandfork could not provide a sandbox. Everything that the guest does, including an endless
//! loop or a segmentation fault, is an [`Outcome`]. `README.md` shows the command; `examples/` has a custom policy, a
//! server and a session.
//!
//! | to | use |
//! |---|---|
//! | run code in a sandbox | [`Sandbox`], built by a [`SandboxBuilder`] with a [`Lifetime`] and a [`CallerEnvironment`] |
//! | pass files, input and limits | [`Request`] with [`GuestPath`], [`Cancel`] and [`OutputSink`] |
//! | decide what a guest may do | [`Policy`], loaded by name or path through a [`FileSystem`] ([`PolicySource`]), with [`Override`]s |
//! | read how a run ended | [`Outcome`]: [`Status`], [`Ending`], [`LimitHit`], [`ExceptionInfo`], [`Value`] |
//! | read what it used and what it was refused | [`Usage`], [`Phases`], [`Denial`] |
//! | read which layers held | [`Enforced`]: a [`Level`] and its [`Layer`]s |
//! | handle a sandbox that could not be provided | [`ErrorKind`], [`PolicyError`] |
//! | keep variables from cell to cell, and offer tools to the guest | [`session`] |
//! | run many tasks | [`batch`] |
//! | limit how many run at once | [`Admission`], [`Capacity`] |
//!
//! Guest code runs only in a worker that the supervisor has checked from outside. No layer is dropped silently. No
//! message from a worker decides how its run ended. `SECURITY.md` explains what this protects against, and
//! [ARCHITECTURE.md] how the library works inside.
//!
//! [ARCHITECTURE.md]: https://github.com/sandfork/sandfork/blob/main/ARCHITECTURE.md

#![cfg_attr(
    not(feature = "internals"),
    warn(unnameable_types),
    allow(
        unused_imports,
        reason = "modules also re-export items that only tests use"
    )
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

// The public API. A test compares it with `tests/public-api.txt`.
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

/// Compiles the Rust code of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Compiles the Rust code of `docs/rust.md`.
#[cfg(doctest)]
#[doc = include_str!("../docs/rust.md")]
struct Rust;

/// Compiles the Rust code of `docs/batch.md`.
#[cfg(doctest)]
#[doc = include_str!("../docs/batch.md")]
struct Batches;
