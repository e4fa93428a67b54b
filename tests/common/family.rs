//! A supervisor's process family as a tracer sees it: the role of each process, and its system calls.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use sandfork_jail::DATA;

use crate::traced::call_names;

/// The role of a process or thread in a supervisor's family.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// The main thread of the process that embeds the library.
    Supervisor,
    /// A thread of the supervisor that serves a session.
    Attendant,
    /// The process that the supervisor starts: it enters the zygote's namespaces, then only waits.
    Launcher,
    /// Process 1 of the zygote's pid namespace.
    Init,
    /// The warm CPython in its jail.
    Zygote,
    /// Process 1 of a worker's pid namespace.
    WorkerInit,
    /// The process in which guest code runs.
    Worker,
    /// Any other process: children of the host probe, and processes that a guest starts.
    Other,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Supervisor => "supervisor",
            Self::Attendant => "attendant",
            Self::Launcher => "launcher",
            Self::Init => "init",
            Self::Zygote => "zygote",
            Self::WorkerInit => "worker's init",
            Self::Worker => "worker",
            Self::Other => "other",
        })
    }
}

/// The shape of a sandbox's process tree.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// One pid namespace for the zygote and one for each worker.
    PidNamespaces,
    /// The same under root, where the launcher first has a child that writes id maps: those of the workers, or of a
    /// writable tree.
    MappedPidNamespaces,
    /// The launcher watches, and each worker has a reaper as its parent, which takes the role of its init.
    Reapers,
}

/// Returns the role of a child. The jail fixes the order in which processes are forked: see `docs/jail-order.md`.
pub fn role_of_child(shape: Shape, parent: Role, nth: usize, clone_flags: u64) -> Role {
    let (shape, nth) = match (shape, parent) {
        (Shape::MappedPidNamespaces, Role::Launcher) => (Shape::PidNamespaces, nth - 1),
        (Shape::MappedPidNamespaces, _) => (Shape::PidNamespaces, nth),
        other => (other.0, nth),
    };
    let shares_memory = clone_flags & u64::from(libc::CLONE_VM.cast_unsigned()) != 0;
    match (shape, parent, nth) {
        (Shape::PidNamespaces, Role::Launcher, 1) => Role::Init,
        // The second child only occupies a process id that the zygote must not have.
        (Shape::PidNamespaces, Role::Launcher, 3) | (Shape::Reapers, Role::Launcher, 1) => {
            Role::Zygote
        }
        (Shape::PidNamespaces, Role::Zygote, _) if shares_memory => Role::WorkerInit,
        (Shape::Reapers, Role::Zygote, _) => Role::WorkerInit,
        (Shape::PidNamespaces, Role::Zygote, _) | (Shape::Reapers, Role::WorkerInit, 1) => {
            Role::Worker
        }
        _ => Role::Other,
    }
}

/// A system call, the role of its process, and its position among the calls.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Call {
    pub role: Role,
    /// Position among all calls of the process since its birth or the last command, from 1.
    pub nth: usize,
    /// Position among its calls of this name, from 1.
    pub occurrence: usize,
    pub number: u64,
    pub arguments: [u64; 6],
}

impl Call {
    pub fn name(&self) -> &'static str {
        NAMES.get(&self.number).copied().unwrap_or("unknown")
    }

    /// Returns whether its name is one of these.
    pub fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.name())
    }

    /// Returns whether its first argument is the worker's data socket.
    pub fn is_on_data(&self) -> bool {
        i32::try_from(self.arguments[0]) == Ok(DATA)
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, ..] = self.arguments;
        let (role, nth, name) = (self.role, self.nth, self.name());
        write!(f, "{role} {nth}: {name}({a:#x}, {b:#x})")
    }
}

static NAMES: LazyLock<HashMap<u64, &'static str>> = LazyLock::new(call_names);

/// Counts the calls that a process has made since its birth or the last command.
#[derive(Debug, Default)]
pub struct Made {
    all: usize,
    by_number: HashMap<u64, usize>,
}

impl Made {
    /// Counts and returns the call that a process of this role is about to make.
    pub fn enter(&mut self, role: Role, registers: &libc::user_regs_struct) -> Call {
        let number = registers.orig_rax;
        let occurrence = self.by_number.entry(number).or_default();
        *occurrence += 1;
        self.all += 1;
        Call {
            role,
            nth: self.all,
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
