//! The modules that a zygote imports, and those that it leaves to the guest.

use serde::Serialize;

use super::words::list;
use crate::error::Error;
use crate::policy::{Located, Preload};
use sandfork_jail::control::MAX_PRELOADED;

/// A module to import in the zygote.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct PreloadPlan {
    /// Its dotted name.
    pub module: String,
    /// Whether it is an error if the module is missing.
    pub required: bool,
    /// Why the zygote leaves it to the guest's own import, once a zygote was tried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_to_guest: Option<LeftToGuest>,
}

/// Why a module is not preloaded.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(tag = "why", rename_all = "kebab-case")]
pub enum LeftToGuest {
    /// It starts threads, which do not survive a fork.
    Threads,
    /// It keeps memory that all workers would share.
    SharedMemory,
    /// It is optional, and not installed.
    Absent,
    /// It is optional, and cannot be imported.
    Fails {
        /// What the import did.
        error: String,
    },
}

impl PreloadPlan {
    /// What becomes of a module that is not preloaded.
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

/// Requires that a zygote can report the modules that it has preloaded.
pub(super) fn check_length(preload: &[Located<Preload>]) -> Result<(), Error> {
    // With the quotes and the comma of each.
    let bytes: usize = preload.iter().map(|it| it.value.module().len() + 3).sum();
    match preload.last() {
        Some(last) if bytes > MAX_PRELOADED => Err(Error::policy(format!(
            "{}`python.preload` is too long: its names have {bytes} bytes with their quotes and commas, and at \
             most {MAX_PRELOADED} fit into the report of what was preloaded: name packages without their \
             submodules, or a module of your own that imports them",
            last.origin.lead()
        ))),
        _ => Ok(()),
    }
}

/// The modules that are preloaded.
pub(super) fn loaded(preload: &[PreloadPlan]) -> String {
    let loaded = preload.iter().filter(|plan| plan.left_to_guest.is_none());
    list(loaded.map(|plan| plan.module.clone()))
}
