//! The calls that a worker's filter refused, as the filter told the supervisor.

use std::collections::BTreeMap;
use std::mem;

use crate::host::Arch;
use crate::plan::seccomp::syscall_name;
use sandfork_jail::sys::seccomp::Asked;

/// A refused call, as far as its refusals are told apart.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RefusedCall {
    /// socket(2) with a family of the Internet.
    InternetSocket,
    /// A call of this name.
    Named(&'static str),
}

/// How often each call was refused. The filter decides which calls are told of, so there are few.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RefusedCalls(BTreeMap<RefusedCall, u64>);

impl RefusedCalls {
    /// Counts a refusal. A socket by which programs ask for the interfaces is none: each lookup of a host's name makes
    /// one, and goes on without (getaddrinfo(3)).
    pub fn count(&mut self, call: Asked) {
        // The kernel reads 32 bits of the family.
        let family = i32::try_from(call.arguments[0] & u64::from(u32::MAX)).ok();
        let number = u32::try_from(call.call).ok();
        let name = number.and_then(|number| syscall_name(Arch::current()?, number));
        let refused = match (name, family) {
            (None, _) | (Some("socket"), Some(libc::AF_NETLINK)) => return,
            (Some("socket"), Some(libc::AF_INET | libc::AF_INET6)) => RefusedCall::InternetSocket,
            (Some(name), _) => RefusedCall::Named(name),
        };
        *self.0.entry(refused).or_default() += 1;
    }

    /// Takes what was counted. Counts later refusals from zero.
    pub fn take(&mut self) -> Self {
        mem::take(self)
    }

    /// Each call, and how often it was refused.
    pub fn each(&self) -> impl ExactSizeIterator<Item = (RefusedCall, u64)> {
        self.0.iter().map(|(call, count)| (*call, *count))
    }
}

#[cfg(test)]
impl FromIterator<(RefusedCall, u64)> for RefusedCalls {
    fn from_iter<I: IntoIterator<Item = (RefusedCall, u64)>>(calls: I) -> Self {
        Self(calls.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn calls_are_counted_by_name_and_sockets_by_family() {
        let mut calls = RefusedCalls::default();
        let mut refused = |number: libc::c_long, first| {
            calls.count(Asked {
                id: 0,
                thread: 0,
                arguments: [first; 6],
                call: libc::c_int::try_from(number).unwrap(),
            });
        };
        refused(libc::SYS_socket, 0xdead_beef_0000_0002);
        refused(libc::SYS_socket, 10);
        refused(libc::SYS_socket, 16);
        refused(libc::SYS_socket, 40);
        refused(libc::SYS_ptrace, 2);
        refused(-1, 2);
        refused(4000, 2);
        let expected = [
            (RefusedCall::InternetSocket, 2),
            (RefusedCall::Named("ptrace"), 1),
            (RefusedCall::Named("socket"), 1),
        ];
        assert_eq!(calls.take(), expected.into_iter().collect());
        assert_eq!(calls, RefusedCalls::default());
    }
}
