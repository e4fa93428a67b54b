//! The egress process, through which the guests of a sandbox reach the hosts that its policy allows.
//!
//! A guest's network namespace contains only a loopback interface. The jail creates sockets on it and passes them to
//! this process, which runs outside all jails and serves one sandbox: a DNS resolver that replies with made-up
//! addresses, listeners for connections to these addresses, and a proxy for HTTP and SOCKS5. The process matches each
//! name against the policy, resolves it, checks the resolved addresses, and connects to one of the checked addresses.
//!
//! The build script of `sandfork` builds this package as a program and embeds the file, so that a program that uses
//! `sandfork` does not link the dependencies of the process. The library of `sandfork` enables the feature `rules`,
//! which does no I/O. The build script enables no feature, which leaves only the constant below. This package is
//! internal to these two, and its API changes with any version.

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
