//! Contains every `unsafe` block and every raw system call of the jail, one file per kernel facility.
//!
//! This module makes no policy decisions. Each function is one call, or one idiom that only makes sense as a whole,
//! with its preconditions in its SAFETY comment. It imports nothing from the rest of the crate, so these files can be
//! read and reviewed alone.
#![allow(unsafe_code)]

/// Defines an enumeration of steps, each with a description that completes the sentence "could not ...". Step numbers
/// cross process boundaries.
macro_rules! steps {
    ($(#[$attribute:meta])* pub enum $name:ident: $number:ident {
        $($step:ident $(= $first:literal)? => $words:literal,)+
    }) => {
        $(#[$attribute])*
        pub enum $name {
            $(#[doc = $words] $step $(= $first)?,)+
        }

        impl $name {
            const ALL: &[Self] = &[$(Self::$step),+];

            /// Returns the step with this number, if there is one.
            pub fn from_number(number: $number) -> Option<Self> {
                Self::ALL.iter().copied().find(|step| *step as $number == number)
            }

            /// Returns what the step does.
            pub fn describe(self) -> &'static str {
                match self {
                    $(Self::$step => $words,)+
                }
            }
        }
    };
}
pub(crate) use steps;

pub mod checkpoint;
pub mod closed_stdout;
pub mod descriptors;
pub mod eager_copy;
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
pub mod write_signals;

use nix::errno::Errno;

/// Returns the errno of an error; `EIO` for an error that the standard library created.
pub fn errno_of(error: impl Into<std::io::Error>) -> Errno {
    Errno::try_from(error.into()).unwrap_or(Errno::EIO)
}

/// Retries a call while it fails with `EINTR`.
pub fn uninterrupted<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::EINTR) => {}
            other => return other,
        }
    }
}

/// Converts the result of a raw system call: -1 becomes the current errno.
pub(crate) fn check(result: libc::c_long) -> Result<libc::c_long, Errno> {
    Errno::result(result)
}
