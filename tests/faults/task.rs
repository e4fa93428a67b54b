//! What a tracer keeps of a process.

use crate::family::{Call, Made, Role};

/// A process or a thread.
#[derive(Debug)]
pub struct Task {
    pub role: Role,
    pub made: Made,
    /// How many processes it has forked.
    pub children: usize,
    /// Whether it was there before the command.
    pub is_old: bool,
    /// Whether it stops at its calls.
    pub is_followed: bool,
    /// Whether it has stopped at one since it has been followed.
    pub is_within: bool,
    /// The forced return value of the current call.
    pub returns: Option<i64>,
}

impl Task {
    pub fn new(role: Role) -> Self {
        Self {
            role,
            made: Made::default(),
            children: 0,
            is_old: false,
            is_followed: false,
            is_within: false,
            returns: None,
        }
    }

    /// It stands before a call.
    pub fn enters(&mut self, registers: &libc::user_regs_struct) -> Call {
        self.is_within = true;
        self.made.enter(self.role, registers)
    }
}

/// A supervisor has one for each session.
pub fn role_of_thread(of: Role) -> Role {
    match of {
        Role::Supervisor | Role::Attendant => Role::Attendant,
        _ => Role::Other,
    }
}
