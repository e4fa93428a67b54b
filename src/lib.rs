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
//! A [`Sandbox`] keeps one warm CPython and forks it for each run; build it once and share it between
//! threads. An [`Error`] means that no sandbox could be provided; whatever the guest does, an endless
//! loop and a segmentation fault included, is an [`Outcome`]. `README.md` shows the command and
//! compares; `examples/` has a policy of one's own and a server.
//!
//! # The modules, in reading order
//!
//! | module | what it is |
//! |---|---|
//! | [`policy`] | what a guest may do: TOML files and the built-in policies, checked. Pure |
//! | [`policy_source`] | reads policy files from the file system |
//! | [`host`] | what this kernel, this process and this interpreter can do, as a value |
//! | [`plan`](mod@plan) | policy and host in, everything that will be done out, as data. Pure |
//! | [`jail`] | the order in which a process closes the layers around itself |
//! | [`sys`] | every `unsafe` block and every raw system call |
//! | [`protocol`] | frames and messages between supervisor and worker. Pure |
//! | [`supervisor`] | starts workers, looks at them from outside, watches and ends them |
//! | [`outcome`] | how a run ended, what it used, what held it. Pure |
//! | [`error`] | why no sandbox could be provided |
//! | [`session`] | a worker that stays: cells, values, host tools |
//! | [`serve`] | sessions for another process, which asks in frames |
//! | [`admission`] | how many runs go on at once, and who waits |
//! | [`batch`] | many tasks, several at a time |
//! | [`capacity`] | how many runs the host can hold at once. Pure |
//! | [`exit_code`] | outcome or error to the exit code of the `sandfork` command |
//!
//! Most callers need [`Sandbox`], [`Request`], [`Policy`] and [`Outcome`], which stand here at the top.
//! The rest is public so that a plan can be made, read and tested without being run.
//!
//! # Invariants
//!
//! Guest code runs only in a worker that the supervisor has looked at from outside; no layer is
//! dropped silently; nothing that a worker says decides how its run ended. `ARCHITECTURE.md` has all of
//! them, `tests/tidy.rs` keeps those that can be read off the source, and `SECURITY.md` says what they
//! are for.

// In reading order: what is allowed, ...
pub mod policy;
pub mod policy_source;
// ... what the host can do, and what will therefore be done, ...
pub mod host;
pub mod plan;
// ... how a process does it to itself, ...
pub mod jail;
pub mod sys;
// ... how it is talked to, driven and watched, ...
pub mod protocol;
pub mod supervisor;
// ... and what the caller sees of it.
pub mod error;
pub mod exit_code;
pub mod outcome;
mod sandbox;
pub mod session;
// ... or of many of them, at the other end of a socket, ...
pub mod serve;
// ... or of many runs at once.
pub mod admission;
pub mod batch;
pub mod capacity;

pub use admission::Admission;
pub use error::{Error, ErrorKind};
pub use host::CallerEnvironment;
pub use jail::control::Lifetime;
pub use outcome::Outcome;
pub use policy::Policy;
pub use sandbox::{Sandbox, SandboxBuilder, SandboxKey};
pub use session::Session;
pub use supervisor::files::GuestPath;
pub use supervisor::{Cancel, OutputSink, Request};

/// The Rust of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// So does that of the page on batches.
#[cfg(doctest)]
#[doc = include_str!("../docs/batch.md")]
struct Batches;
