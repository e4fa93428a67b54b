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
//! endless loop and a segmentation fault included, is an [`Outcome`]. `README.md` shows the command and
//! a comparison; `examples/` has a custom policy and a server.
//!
//! # The modules, in reading order
//!
//! | module | what it is |
//! |---|---|
//! | [`policy`] | what a guest may do: TOML files and the built-in policies, checked. Pure |
//! | [`policy_source`] | reads policy files from the file system |
//! | [`host`] | what this kernel, this process and this interpreter can do, as a value |
//! | [`plan`](mod@plan) | turns policy and host into everything that will be done, as data. Pure |
//! | [`sandfork_jail`] | the steps by which a process applies the layers to itself, in order, and every system call |
//! | [`protocol`] | frames and messages between supervisor and worker. Pure |
//! | [`supervisor`] | starts workers, checks them from outside, watches and ends them |
//! | [`outcome`] | how a run ended, what it used, which layers held. Pure |
//! | [`error`] | why no sandbox could be provided |
//! | [`session`] | a long-lived worker: cells, values, host tools |
//! | [`serve`] | sessions for another process, which sends requests as frames |
//! | [`admission`] | how many runs are active at a time, and which wait |
//! | [`batch`] | many tasks, several at a time |
//! | [`capacity`] | how many runs the host can hold at a time. Pure |
//!
//! Most callers need [`Sandbox`], [`Request`], [`Policy`] and [`Outcome`], which the crate root exports.
//! The rest is public so that a plan can be made, read and tested without being run.
//!
//! # Invariants
//!
//! Guest code runs only in a worker that the supervisor has checked from outside. No layer is dropped
//! silently. No message of a worker decides how its run ended. `ARCHITECTURE.md` lists all invariants,
//! `tests/tidy.rs` enforces those that the source shows, and `SECURITY.md` explains their purpose.

// In reading order: what is allowed, ...
pub mod policy;
pub mod policy_source;
// ... what the host can do, and what will therefore be done, ...
pub mod host;
pub mod plan;
// ... how the supervisor talks to it, drives and watches it, ...
pub mod protocol;
pub mod supervisor;
// ... and what the caller sees of it.
pub mod error;
pub mod outcome;
mod sandbox;
pub mod session;
// ... or of many of them, at the other end of a socket, ...
pub mod serve;
// ... or of many runs at once.
pub mod admission;
pub mod batch;
pub mod capacity;
// The command, which src/main.rs starts.
mod cli;

pub use admission::Admission;
#[doc(hidden)]
pub use cli::command;
pub use error::{Error, ErrorKind};
pub use host::CallerEnvironment;
pub use outcome::Outcome;
pub use policy::Policy;
pub use sandbox::{Sandbox, SandboxBuilder, SandboxKey};
pub use sandfork_jail::control::Lifetime;
pub use session::Session;
pub use supervisor::files::GuestPath;
pub use supervisor::{Cancel, OutputSink, Request};

/// The Rust of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The Rust of the page on batches compiles.
#[cfg(doctest)]
#[doc = include_str!("../docs/batch.md")]
struct Batches;
