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
    /// Whether it was there before the command.
    pub is_old: bool,
    /// Whether it stops at its calls.
    pub is_followed: bool,
    /// Whether it has stopped at one since it has been followed.
    pub is_within: bool,
    /// What the call that it is in is to return, whatever it does.
    pub returns: Option<i64>,
}

impl Task {
    pub fn new(role: Role) -> Self {
        Self {
            role,
            calls: 0,
            occurrences: HashMap::new(),
            children: 0,
            is_old: false,
            is_followed: false,
            is_within: false,
            returns: None,
        }
    }

    /// It stands before a call.
    pub fn enters(&mut self, registers: &libc::user_regs_struct) -> Call {
        let number = registers.orig_rax;
        let occurrence = self.occurrences.entry(number).or_default();
        *occurrence += 1;
        self.calls += 1;
        self.is_within = true;
        Call {
            role: self.role,
            nth: self.calls,
            occurrence: *occurrence,
            number,
            arguments: [
                registers.rdi,
                registers.rsi,
                registers.rdx,
                registers.r10,
                registers.r8,
                registers.r9,
            ],
        }
    }
}

/// A supervisor has one for each session.
pub fn role_of_thread(of: Role) -> Role {
    match of {
        Role::Supervisor | Role::Attendant => Role::Attendant,
        _ => Role::Other,
    }
}

/// How the processes of a sandbox descend from each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// A pid namespace for the zygote, and one for each worker.
    PidNamespaces,
    /// The launcher watches, and above each worker is a reaper: here it is called its init.
    Reapers,
}

/// By the order of births, which the jail fixes: see `docs/jail-order.md`.
pub fn role_of_child(shape: Shape, parent: Role, nth: usize, clone_flags: u64) -> Role {
    let shares_memory = clone_flags & u64::from(libc::CLONE_VM.cast_unsigned()) != 0;
    match (shape, parent, nth) {
        (Shape::PidNamespaces, Role::Launcher, 1) => Role::Init,
        // The first only keeps a number from the zygote.
        (Shape::PidNamespaces, Role::Init, 2) | (Shape::Reapers, Role::Launcher, 1) => Role::Zygote,
        (Shape::PidNamespaces, Role::Zygote, _) if shares_memory => Role::WorkerInit,
        (Shape::Reapers, Role::Zygote, _) => Role::WorkerInit,
        (Shape::PidNamespaces, Role::Zygote, _) | (Shape::Reapers, Role::WorkerInit, 1) => {
            Role::Worker
        }
        _ => Role::Other,
    }
}
