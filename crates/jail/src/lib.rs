//! The jail that a sandbox runs in. [`zygote`] and [`worker`] apply it step by step, with the reason for the
//! position of each step. The other files cover one kernel facility each, and [`sys`] contains every `unsafe`
//! block and raw system call.
//!
//! The `sandfork` library builds the plan in [`program`], decodes [`failure`] reports, and probes the host. The
//! native half of the zygote (`sandfork-worker`) executes the steps. The jail executes its prepared plan and
//! makes no decisions. The egress process and the server use parts of this crate. The API exists for these
//! packages only and may change in any version.

/// The descriptor number of the data socket in a worker.
///
/// The number is far above those that programs rely on: the first descriptor that a guest opens is 3, as
/// usual, and a guest that closes every descriptor up to its limit, as daemons do, does not cut itself off. It
/// is also the highest descriptor that select(2) supports. A host whose hard limit excludes it is rejected
/// before anything starts.
pub const DATA: std::os::fd::RawFd = 1023;

pub mod archive;
pub mod capabilities;
mod cgroup;
pub mod control;
pub mod failure;
pub mod filter;
pub mod identity;
mod landlock;
pub mod limits;
pub mod loopback;
pub mod machine_files;
mod namespaces;
mod owners;
mod preload;
pub mod program;
pub mod reaper;
pub mod restore;
mod root;
mod scheduling;
mod self_check;
mod shared_host;
pub mod sys;
pub mod timing;
pub mod tree;
pub mod uapi;
pub mod worker;
pub mod zygote;
