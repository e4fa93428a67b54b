//! System calls, as a tracer sees them, and what can be done to one.

use std::collections::HashMap;
use std::fmt;
use std::sync::LazyLock;
use std::time::Duration;

use nix::errno::Errno;
use sandfork::jail::DATA;
use sandfork::plan::seccomp::{Arch, syscall_number};

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
        write!(
            f,
            "{} {}: {}({a:#x}, {b:#x})",
            self.role,
            self.nth,
            self.name()
        )
    }
}

static NAMES: LazyLock<HashMap<u64, &'static str>> = LazyLock::new(call_names);

/// The number of a call that every filter lets through and that does nothing.
pub fn harmless() -> u64 {
    syscall_number(Arch::X86_64, "getpid").map_or(0, u64::from)
}

/// What is done to a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Act {
    /// It is not made, and returns this error.
    Fail(Errno),
    /// It is made, and returns this error all the same.
    Deny(Errno),
    /// It is not made, and says that it was: what it returns is given.
    Pretend(i64),
    /// It is made later.
    Delay(Duration),
    /// When it is about to be made, the youngest process of this role is killed.
    Kill(Role),
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fail(errno) => write!(f, "fails with {errno:?}"),
            Self::Deny(errno) => write!(f, "is made and returns {errno:?}"),
            Self::Pretend(_) => f.write_str("is left out"),
            Self::Delay(time) => write!(f, "takes {} ms longer", time.as_millis()),
            Self::Kill(role) => write!(f, "is where the {role} is killed"),
        }
    }
}

/// One fault: at this call of the first process of this role that comes to it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fault {
    role: Role,
    place: Place,
    act: Act,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// However many of other names come before it: that may differ from time to time.
    Occurrence { number: u64, occurrence: usize },
    /// Whatever it is.
    Nth(usize),
}

impl Fault {
    /// At a call that was seen before.
    pub fn at(call: &Call, act: Act) -> Self {
        let place = Place::Occurrence {
            number: call.number,
            occurrence: call.occurrence,
        };
        let role = call.role;
        Self { role, place, act }
    }

    /// When a process of this role is at its nth call, the youngest of that role is killed.
    pub fn kill(victim: Role, clock: Role, nth: usize) -> Self {
        Self {
            role: clock,
            place: Place::Nth(nth),
            act: Act::Kill(victim),
        }
    }

    /// Whose call.
    pub fn role(&self) -> Role {
        self.role
    }

    /// What is to be done to this call.
    pub fn for_call(&self, call: &Call) -> Option<Act> {
        let here = match self.place {
            Place::Nth(nth) => nth == call.nth,
            Place::Occurrence { number, occurrence } => {
                (number, occurrence) == (call.number, call.occurrence)
            }
        };
        (self.role == call.role && here).then_some(self.act)
    }
}
