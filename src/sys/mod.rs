//! Every `unsafe` block and every raw system call of the project, one file per kernel facility.
//!
//! Nothing here decides anything: each function is one call, or one idiom that only makes sense
//! whole, with its preconditions in its SAFETY comment. Nothing here imports from the rest of the
//! crate, so that these files can be read, and reviewed, alone.
#![allow(unsafe_code)]

pub mod descriptors;
pub mod landlock;
pub mod memory;
pub mod mount;
pub mod namespace_init;
pub mod pidfd;
#[cfg(not(feature = "inside"))]
pub mod probe_child;
pub mod process;
pub mod procfs;
#[cfg(feature = "inside")]
pub mod python;
#[cfg(feature = "inside")]
pub mod refused;
#[cfg(feature = "inside")]
pub mod scheduling;
#[cfg(not(feature = "inside"))]
pub mod sealed;
pub mod seccomp;
#[cfg(not(feature = "inside"))]
pub mod support;

use nix::errno::Errno;

/// Turns a raw system call's result into an errno when it failed.
pub(crate) fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    Errno::result(result)
}
