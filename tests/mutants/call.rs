//! System calls, as a tracer sees them.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;

use sandfork::jail::DATA;
use sandfork::plan::seccomp::{Arch, syscall_number, syscalls};

/// Which process of a supervisor's family it is.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// The process that embeds the library.
    Supervisor,
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
    /// Anything else, of which no call is looked at: the host probe's children.
    Other,
}

impl Role {
    /// That of a child, by the order of births, which the jail fixes: see `docs/jail-order.md`.
    pub fn of_child(self, nth: usize, clone_flags: u64) -> Self {
        let shares_memory = clone_flags & u64::from(libc::CLONE_VM.cast_unsigned()) != 0;
        match (self, nth) {
            (Self::Launcher, 1) => Self::Init,
            // The first only keeps a number from the zygote.
            (Self::Init, 2) => Self::Zygote,
            (Self::Zygote, _) if shares_memory => Self::WorkerInit,
            (Self::Zygote, _) => Self::Worker,
            _ => Self::Other,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Supervisor => "supervisor",
            Self::Launcher => "launcher",
            Self::Init => "init",
            Self::Zygote => "zygote",
            Self::WorkerInit => "worker's init",
            Self::Worker => "worker",
            Self::Other => "other",
        })
    }
}

/// A system call: whose, and what it is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Call {
    pub role: Role,
    /// Among those of its name that the process has made, from 1.
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
        write!(f, "{}'s {}({a:#x}, {b:#x})", self.role, self.name())
    }
}

static NAMES: LazyLock<HashMap<u64, &'static str>> = LazyLock::new(|| {
    syscalls(Arch::X86_64)
        .map(|(name, number)| (u64::from(number), name))
        .collect()
});

/// The number of a call that every filter lets through and that does nothing.
pub fn harmless() -> u64 {
    syscall_number(Arch::X86_64, "getpid").map_or(0, u64::from)
}
