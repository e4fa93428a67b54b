//! The native half of a Sandfork zygote, together with the Python code that runs in it (`guest`).
//!
//! The build script of `sandfork` builds this package as a shared library and embeds the file, because Cargo cannot
//! embed one package's library in another. To locate these sources, in a checkout or in Cargo's registry, the script
//! depends on this package without the feature `native`, which leaves only the constant below. The package is for that
//! script alone and may change in any version.

#[cfg(feature = "native")]
mod native;

/// The directory of this package's sources.
pub const SOURCES: &str = env!("CARGO_MANIFEST_DIR");
