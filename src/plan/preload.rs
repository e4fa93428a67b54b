//! Plans the modules that a zygote imports, and reports those that it leaves to the guest.

use serde::Serialize;

use super::words::list;
use crate::error::Error;
use crate::policy::{Located, Preload};
use sandfork_jail::control::MAX_PRELOADED;

/// A module to import in the zygote.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PreloadPlan {
    /// The dotted name.
    pub module: String,
    /// Whether a missing module is an error.
    pub required: bool,
    /// The reason why the zygote leaves the import to the guest, known once a zygote was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_to_guest: Option<LeftToGuest>,
}

/// The reason why a module is not preloaded.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum LeftToGuest {
    /// The module starts threads, which do not survive a fork.
    Threads,
    /// The module keeps memory that all workers would share.
    SharedMemory,
    /// The module is optional and not installed.
    Absent,
    /// The module is optional and cannot be imported.
    Fails {
        /// The error of the import.
        error: String,
    },
}

impl PreloadPlan {
    /// Explains why a module is not preloaded. Returns `None` if it is preloaded.
    pub fn note(&self) -> Option<String> {
        let module = &self.module;
        let why = match self.left_to_guest.as_ref()? {
            LeftToGuest::Threads => {
                "is imported in each session that uses it, because it starts threads, and a process \
                 with threads cannot be forked"
            }
            LeftToGuest::SharedMemory => {
                "is imported in each session that uses it, because it keeps shared memory, through \
                 which sessions could reach each other"
            }
            LeftToGuest::Absent => "is not installed, which the policy allows",
            LeftToGuest::Fails { error } => {
                return Some(format!(
                    "`{module}` is not preloaded, because it cannot be imported ({error})"
                ));
            }
        };
        Some(format!("`{module}` {why}"))
    }
}

/// Rejects more modules than a zygote can report.
pub(super) fn check_length(preload: &[Located<Preload>]) -> Result<(), Error> {
    // Each name takes two quotes and a comma.
    let bytes: usize = preload.iter().map(|it| it.value.module().len() + 3).sum();
    match preload.last() {
        Some(last) if bytes > MAX_PRELOADED => Err(Error::policy(format!(
            "{}`python.preload` is too long: its names take {bytes} bytes with quotes and commas, but a zygote's \
             report of its preloads has room for {MAX_PRELOADED}: name packages without their submodules, or a \
             module of your own that imports them",
            last.origin.lead()
        ))),
        _ => Ok(()),
    }
}

/// Lists the modules that are preloaded.
pub(super) fn loaded(preload: &[PreloadPlan]) -> String {
    let loaded = preload.iter().filter(|plan| plan.left_to_guest.is_none());
    list(loaded.map(|plan| plan.module.clone()))
}
