//! The process through which the guests of a sandbox reach the hosts that its policy names.
//!
//! A guest's network namespace has a loopback interface and nothing else. Sockets that the jail made there belong to
//! this process, which runs outside all jails, for one sandbox: a resolver that answers with made-up addresses,
//! listeners for connections to those, and a proxy for HTTP and SOCKS5. The process compares each name with the
//! policy, resolves it, and dials the address that it judged.
//!
//! The build script of `sandfork` builds this package as a program and embeds the file, so a program that uses
//! `sandfork` is not linked with the dependencies of the process. The library of `sandfork` uses the feature `rules`,
//! which does no I/O, and the script neither, which leaves the constant below. The package is for these two, and
//! changes with any version.

#[cfg(feature = "rules")]
pub mod address;
#[cfg(feature = "rules")]
pub mod control;
#[cfg(feature = "rules")]
pub mod dns;
#[cfg(feature = "rules")]
pub mod hello;
#[cfg(feature = "rules")]
pub mod host;
#[cfg(feature = "rules")]
pub mod names;
#[cfg(feature = "rules")]
pub mod path;
#[cfg(feature = "process")]
pub mod process;
#[cfg(feature = "rules")]
pub mod refusal;
#[cfg(feature = "rules")]
pub mod rules;
#[cfg(feature = "rules")]
pub mod socks;

/// The directory of this package's sources.
pub const SOURCES: &str = env!("CARGO_MANIFEST_DIR");
