//! Every `unsafe` block and every raw system call of the project, one file per kernel facility.
//!
//! This module decides nothing. Each function is one call, or one idiom that only makes sense as a
//! whole, with its preconditions in its SAFETY comment. It imports nothing from the rest of the
//! crate, so these files can be read and reviewed alone.
#![allow(unsafe_code)]

pub mod checkpoint;
pub mod descriptors;
pub mod hold;
pub mod kernel_pointers;
pub mod kernel_state;
pub mod landlock;
pub mod lease;
pub mod memory;
pub mod mount;
pub mod namespace_init;
pub mod pagemap;
pub mod pidfd;
pub mod probe_child;
pub mod process;
pub mod procfs;
pub mod refused;
pub mod scheduling;
pub mod sealed;
pub mod seccomp;
pub mod starter;
pub mod support;
pub mod terminal;

use nix::errno::Errno;

/// Turns the result of a failed raw system call into an errno.
pub(crate) fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    Errno::result(result)
}
