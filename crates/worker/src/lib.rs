//! The native half of a Sandfork zygote, with the Python that runs there (`guest`).
//!
//! The build script of `sandfork` builds this package as a shared library and embeds the file, because
//! Cargo embeds no library in another package. To find these sources, in a checkout or in Cargo's
//! registry, the script depends on this package without the feature `native`, which leaves the
//! constant below. The package is for that script alone, and changes with any version.

#[cfg(feature = "native")]
mod native;

/// The directory of this package's sources.
pub const SOURCES: &str = env!("CARGO_MANIFEST_DIR");
