//! The jail: `zygote` and `worker` each show their whole order on one screen, one line a step,
//! with what breaks if a line moves. The other files hold one kernel facility each, and [`sys`] holds
//! every `unsafe` block and raw system call.
//!
//! Two programs use this crate. The `sandfork` library makes the data of [`program`], reads
//! [`failure`], and probes the host. The native half of the zygote (`sandfork-worker`) runs the steps.
//! The jail knows only its prepared program, and decides nothing. Its API is for these two alone, and changes
//! with any version.

/// Number of the data socket in a worker.
///
/// Far from the numbers that programs count on: the first that a guest opens is 3, as elsewhere, and
/// one that closes everything up to its limit, as daemons do, does not cut itself off. The last that
/// select(2) knows. A host whose hard limit does not allow it is refused before any start.
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
