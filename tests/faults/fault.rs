//! The faults that can be injected into a system call.

use std::fmt;
use std::time::Duration;

use nix::errno::Errno;

use crate::family::{Call, Role};

/// What happens to a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Act {
    /// The call is not made and returns this error.
    Fail(Errno),
    /// The call is made, but returns this error.
    Deny(Errno),
    /// The call is not made, but returns the given success value.
    Pretend(i64),
    /// The call is made later.
    Delay(Duration),
    /// Just before the call, the youngest process of this role is killed.
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

/// One fault, at this call of the first process of this role that makes it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fault {
    role: Role,
    place: Place,
    act: Act,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Place {
    /// The nth call of one name. Calls of other names in between may vary.
    Occurrence { number: u64, occurrence: usize },
    /// The nth call of any name.
    Nth(usize),
}

impl Fault {
    /// Injects a fault into a call that was recorded before.
    pub fn at(call: &Call, act: Act) -> Self {
        let place = Place::Occurrence {
            number: call.number,
            occurrence: call.occurrence,
        };
        let role = call.role;
        Self { role, place, act }
    }

    /// Kills the youngest process of the role `victim` when a process of the role `clock` is at its nth call.
    pub fn kill(victim: Role, clock: Role, nth: usize) -> Self {
        Self {
            role: clock,
            place: Place::Nth(nth),
            act: Act::Kill(victim),
        }
    }

    /// Returns the role whose calls are watched.
    pub fn role(&self) -> Role {
        self.role
    }

    /// Returns the act for this call, if it is the one.
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
