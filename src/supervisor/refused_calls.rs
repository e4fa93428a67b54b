//! The calls that a worker's filter forwarded to be refused.

use std::collections::BTreeMap;
use std::mem;

use nix::errno::Errno;

use crate::host::Arch;
use crate::plan::seccomp::syscall_name;
use sandfork_jail::sys::seccomp::Asked;

/// A kind of call. An outcome has one denial for each.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum RefusedCall {
    /// socket(2) with a family of the Internet.
    InternetSocket,
    /// A call of this name.
    Named(&'static str),
}

impl RefusedCall {
    /// The error that the guest gets. `EINVAL` is what descriptors without splice(2) answer: programs such as grep(1)
    /// copy only then.
    pub fn errno(self) -> Errno {
        match self {
            Self::Named("splice" | "tee") => Errno::EINVAL,
            Self::InternetSocket | Self::Named(_) => Errno::EPERM,
        }
    }
}

/// How often each kind of call was refused. The filter forwards few of them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RefusedCalls {
    internet_sockets: u64,
    /// By the number of the system call.
    others: BTreeMap<u32, u64>,
}

impl RefusedCalls {
    /// Counts a refusal and returns its error. A socket of netlink(7) does not count: each lookup of a host's name makes
    /// one to ask for the interfaces, and goes on without (getaddrinfo(3)).
    pub fn count(&mut self, call: Asked) -> Errno {
        // The kernel reads 32 bits of the family.
        let family = i32::try_from(call.arguments[0] & u64::from(u32::MAX)).ok();
        let is_socket = libc::c_long::from(call.call) == libc::SYS_socket;
        match (family, u32::try_from(call.call)) {
            (Some(libc::AF_NETLINK), _) if is_socket => {}
            (Some(libc::AF_INET | libc::AF_INET6), _) if is_socket => self.internet_sockets += 1,
            (_, Ok(number)) => *self.others.entry(number).or_default() += 1,
            (_, Err(_)) => {}
        }
        // As `RefusedCall::errno`, by the number: the search for a name reads the whole table.
        match libc::c_long::from(call.call) {
            libc::SYS_splice | libc::SYS_tee => Errno::EINVAL,
            _ => Errno::EPERM,
        }
    }

    /// Takes what was counted. Counts later refusals from zero.
    pub fn take(&mut self) -> Self {
        mem::take(self)
    }

    /// Each kind of call that has a name here, and how often it was refused. Sorted by name, sockets first.
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
                    let arch = Arch::current().expect("tests run where guests do");
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
            calls.count(Asked {
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
