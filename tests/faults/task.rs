//! The tracer's state of a process.

use crate::family::{Call, Made, Role};

/// A process or a thread.
#[derive(Debug)]
pub struct Task {
    pub role: Role,
    pub made: Made,
    /// The number of processes that it has forked.
    pub children: usize,
    /// Whether it existed before the command.
    pub is_old: bool,
    /// Whether it stops at its calls.
    pub is_followed: bool,
    /// Whether it has stopped at a call since it is being followed.
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

    /// Records that the process is about to make a call.
    pub fn enters(&mut self, registers: &libc::user_regs_struct) -> Call {
        self.is_within = true;
        self.made.enter(self.role, registers)
    }
}

/// Returns the role of a new thread. A supervisor has one thread for each session.
pub fn role_of_thread(of: Role) -> Role {
    match of {
        Role::Supervisor | Role::Attendant => Role::Attendant,
        _ => Role::Other,
    }
}
