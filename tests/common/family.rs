//! A supervisor's family as a tracer sees it: which process is which, and the system calls that they make.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use sandfork_jail::DATA;

use crate::traced::call_names;

/// Which process of a supervisor's family it is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// The process that embeds the library: its main thread.
    Supervisor,
    /// A thread of the supervisor's that attends to a session.
    Attendant,
    /// What the supervisor started: it enters the zygote's namespaces, then only waits.
    Launcher,
    /// Process 1 of the zygote's pid namespace.
    Init,
    /// CPython, warm, in its jail.
    Zygote,
    /// Process 1 of a worker's pid namespace.
    WorkerInit,
    /// The process in which guest code runs.
    Worker,
    /// Anything else: the host probe's children, what a guest starts.
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

/// How the processes of a sandbox descend from each other.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Shape {
    /// A pid namespace for the zygote, and one for each worker.
    PidNamespaces,
    /// The family under root, whose launcher first has a child for id maps: the workers', or those of a writable
    /// tree.
    MappedPidNamespaces,
    /// The launcher watches, and above each worker is a reaper: here it is called its init.
    Reapers,
}

/// By the order of births, which the jail fixes: see `docs/jail-order.md`.
pub fn role_of_child(shape: Shape, parent: Role, nth: usize, clone_flags: u64) -> Role {
    let (shape, nth) = match (shape, parent) {
        (Shape::MappedPidNamespaces, Role::Launcher) => (Shape::PidNamespaces, nth - 1),
        (Shape::MappedPidNamespaces, _) => (Shape::PidNamespaces, nth),
        other => (other.0, nth),
    };
    let shares_memory = clone_flags & u64::from(libc::CLONE_VM.cast_unsigned()) != 0;
    match (shape, parent, nth) {
        (Shape::PidNamespaces, Role::Launcher, 1) => Role::Init,
        // The second only keeps a number from the zygote.
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

/// A system call: whose, the how many-eth since the command or the birth, and what it was.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Call {
    pub role: Role,
    /// Among all calls of the process, from 1.
    pub nth: usize,
    /// Among those of its name, from 1.
    pub occurrence: usize,
    pub number: u64,
    pub arguments: [u64; 6],
}

impl Call {
    pub fn name(&self) -> &'static str {
        NAMES.get(&self.number).copied().unwrap_or("unknown")
    }

    /// Whether it is one of these.
    pub fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.name())
    }

    /// Whether its first argument is the worker's data socket.
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

/// The calls that a process has made since its birth, or since the last command.
#[derive(Debug, Default)]
pub struct Made {
    all: usize,
    by_number: HashMap<u64, usize>,
}

impl Made {
    /// The call that a process of this role stands before, which counts from now on.
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
