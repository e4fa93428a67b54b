//! Environments of packages: made in a sandbox, kept read-only, found by name or by packages.
//!
//! What is in one is decided by a lock, which is a list of wheels with their hashes, and by the interpreter. Two sandboxes
//! take part: one asks the index which wheels there are, and one fetches them, checks their hashes, and hands their
//! files to this process, which writes them. No code of a package runs in either. `lock`, `index` and
//! `requirement_line` are data; `jail`, `tree` and `create` have effects.

mod add;
mod allowed;
mod build;
mod create;
mod error;
mod explain;
mod index;
mod jail;
mod keep;
mod links;
mod lock;
mod pip;
mod place;
mod provide;
mod pylock;
mod requirement_line;
mod requirements;
mod resolver;
mod sources;
mod staging;
mod tags;
mod tree;
mod uv;

/// What reads bytes of others.
#[cfg(feature = "internals")]
pub mod readers {
    pub use super::index::Access;
    pub use super::lock::{Lock, LockedWheel};
    pub use super::pylock::locked_lines;
    pub use super::requirement_line::requirement;
    pub use super::tree::check as check_path;
    pub use crate::host::PipConfig;
}

pub use add::cell_that_adds;
pub use create::{Creation, Found, Layer, Step, create};
pub use jail::Builds;
pub use keep::{Description, Extent, description, names_of, prune, remove};
pub use links::directory_of;
pub use provide::{is_missing, provide};
pub use requirements::Wanted;
