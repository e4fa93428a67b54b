//! Creates package environments in a sandbox, keeps them read-only, and finds them by name or by packages.
//!
//! The contents of an environment are determined by a lock, which lists wheels with their hashes, and by the
//! interpreter. Two sandboxes take part: the first asks the index which wheels there are; the second fetches them,
//! checks their hashes, and passes their files to this process, which writes them. No package code runs in either,
//! unless the caller allows source distributions to be built (`build`): their code runs in the first sandbox, never in
//! the second. `lock`, `index` and `requirement_line` are data; `jail`, `tree` and `create` have effects.

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

/// The parsers of untrusted input.
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
