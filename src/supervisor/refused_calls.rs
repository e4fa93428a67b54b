//! Counts the system calls that a worker's filter forwards to the supervisor to be refused.

use std::collections::BTreeMap;
use std::mem;

use nix::errno::Errno;

use crate::host::Arch;
use crate::plan::seccomp::syscall_name;
use sandfork_jail::sys::seccomp::Notification;

/// A kind of refused call. An outcome has one denial for each kind.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RefusedCall {
    /// socket(2) with an Internet address family.
    InternetSocket,
    /// The system call of this name.
    Named(&'static str),
}

impl RefusedCall {
    /// Returns the error for the guest. `EINVAL` is the error of descriptors that do not support splice(2): only then
    /// do programs such as grep(1) fall back to copying.
    pub fn errno(self) -> Errno {
        match self {
            Self::Named("splice" | "tee") => Errno::EINVAL,
            Self::InternetSocket | Self::Named(_) => Errno::EPERM,
        }
    }
}

/// The number of refused calls of each kind. The filter forwards only a few kinds of calls.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RefusedCalls {
    internet_sockets: u64,
    /// Counts by system call number.
    others: BTreeMap<u32, u64>,
}

impl RefusedCalls {
    /// Counts a refused call and returns its error. A netlink(7) socket does not count: each host name lookup creates
    /// one to list the interfaces, and works without it (getaddrinfo(3)).
    pub fn count(&mut self, call: Notification) -> Errno {
        // The kernel uses only the low 32 bits of the family.
        let family = i32::try_from(call.arguments[0] & u64::from(u32::MAX)).ok();
        let is_socket = libc::c_long::from(call.call) == libc::SYS_socket;
        match (family, u32::try_from(call.call)) {
            (Some(libc::AF_NETLINK), _) if is_socket => {}
            (Some(libc::AF_INET | libc::AF_INET6), _) if is_socket => self.internet_sockets += 1,
            (_, Ok(number)) => *self.others.entry(number).or_default() += 1,
            (_, Err(_)) => {}
        }
        // Same as `RefusedCall::errno`, but by number, because looking up a name scans the whole table.
        match libc::c_long::from(call.call) {
            libc::SYS_splice | libc::SYS_tee => Errno::EINVAL,
            _ => Errno::EPERM,
        }
    }

    /// Takes the counts. Later calls are counted from zero.
    pub fn take(&mut self) -> Self {
        mem::take(self)
    }

    /// Returns the kinds of calls with a known name and their counts, sorted by name, Internet sockets first.
    pub fn each(&self) -> Vec<(RefusedCall, u64)> {
        let internet = (self.internet_sockets > 0)
            .then_some((RefusedCall::InternetSocket, self.internet_sockets));
        let named = self.others.iter().filter_map(|(number, count)| {
            let name = syscall_name(Arch::current()?, *number)?;
            Some((RefusedCall::Named(name), *count))
        });
        let mut all: Vec<_> = internet.into_iter().chain(named).collect();
        all.sort_unstable();
        all
    }
}

#[cfg(test)]
impl FromIterator<(RefusedCall, u64)> for RefusedCalls {
    fn from_iter<I: IntoIterator<Item = (RefusedCall, u64)>>(calls: I) -> Self {
        let mut all = Self::default();
        for (call, count) in calls {
            match call {
                RefusedCall::InternetSocket => all.internet_sockets += count,
                RefusedCall::Named(name) => {
                    let arch = Arch::current().expect("the architecture is supported");
                    let number = crate::plan::seccomp::syscall_number(arch, name);
                    *all.others.entry(number.expect(name)).or_default() += count;
                }
            }
        }
        all
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
            calls.count(Notification {
                id: 0,
                thread: 0,
                arguments: [first; 6],
                call: libc::c_int::try_from(number).unwrap(),
            })
        };
        for (number, first, errno) in [
            (libc::SYS_socket, 0xdead_beef_0000_0002, Errno::EPERM),
            (libc::SYS_socket, 10, Errno::EPERM),
            (libc::SYS_socket, 16, Errno::EPERM),
            (libc::SYS_socket, 40, Errno::EPERM),
            (libc::SYS_ptrace, 2, Errno::EPERM),
            (libc::SYS_splice, 2, Errno::EINVAL),
            (-1, 2, Errno::EPERM),
            (4000, 2, Errno::EPERM),
        ] {
            assert_eq!(refused(number, first), errno, "{number}");
        }
        let expected = [
            (RefusedCall::InternetSocket, 2),
            (RefusedCall::Named("ptrace"), 1),
            (RefusedCall::Named("socket"), 1),
            (RefusedCall::Named("splice"), 1),
        ];
        assert_eq!(calls.take().each(), expected);
        assert_eq!(calls, RefusedCalls::default());
    }
}
