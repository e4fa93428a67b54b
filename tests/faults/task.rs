//! What a tracer keeps of a process.

use std::collections::HashMap;

use crate::call::{Call, Role};

/// A process or a thread.
#[derive(Debug)]
pub struct Task {
    pub role: Role,
    /// System calls since its birth, or since the last command.
    pub calls: usize,
    /// The same, by their numbers.
    pub occurrences: HashMap<u64, usize>,
    /// How many processes it has forked.
    pub children: usize,
    /// The call that it is in.
    pub within: Option<Call>,
    /// What that is to return, whatever it does.
    pub returns: Option<i64>,
}

impl Task {
    pub fn new(role: Role) -> Self {
        Self {
            role,
            calls: 0,
            occurrences: HashMap::new(),
            children: 0,
            within: None,
            returns: None,
        }
    }
}

/// By the order of births, which the jail fixes: see `docs/jail-order.md`.
pub fn role_of_child(parent: Role, nth: usize, clone_flags: u64) -> Role {
    let shares_memory = clone_flags & u64::from(libc::CLONE_VM.cast_unsigned()) != 0;
    match (parent, nth) {
        (Role::Launcher, 1) => Role::Init,
        // The first only keeps a number from the zygote.
        (Role::Init, 2) => Role::Zygote,
        (Role::Zygote, _) if shares_memory => Role::WorkerInit,
        (Role::Zygote, _) => Role::Worker,
        _ => Role::Other,
    }
}
