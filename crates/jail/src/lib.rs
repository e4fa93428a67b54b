//! The jail: `zygote` and `worker` each show their whole order on one screen, one line a step,
//! with what breaks if a line moves; the other files hold one kernel facility each.
//!
//! This module is compiled twice: into the `sandfork` library, which only makes the data of
//! [`program`] and reads [`failure`], and into the native half of the zygote, which runs it.
//! It knows its prepared plan and `sys`, and decides nothing.

/// Number of the data socket in a worker.
///
/// Far from the numbers that programs count on: the first that a guest opens is 3, as elsewhere, and
/// one that closes everything up to its limit, as daemons do, does not cut itself off. The last that
/// select(2) knows and that every host's hard limit allows.
pub const DATA: std::os::fd::RawFd = 1023;

pub mod control;
pub mod failure;
pub mod program;
pub mod timing;
pub mod tree;

#[cfg(feature = "inside")]
mod capabilities;
#[cfg(feature = "inside")]
mod cgroup;
#[cfg(feature = "inside")]
mod identity;
#[cfg(feature = "inside")]
mod landlock;
#[cfg(feature = "inside")]
mod limits;
#[cfg(feature = "inside")]
mod namespaces;
#[cfg(feature = "inside")]
pub mod reaper;
#[cfg(feature = "inside")]
mod root;
#[cfg(feature = "inside")]
mod scheduling;
#[cfg(feature = "inside")]
mod self_check;
#[cfg(feature = "inside")]
mod shared_host;
#[cfg(feature = "inside")]
pub mod worker;
#[cfg(feature = "inside")]
pub mod zygote;
