//! Queries about a family of processes, answered by the tracer and the kernel.

use std::fs;
use std::path::Path;

use nix::unistd::Pid;
use sandfork::internals::plan::seccomp::{Arch, syscall_number};

use super::Tracer;
use crate::family::Role;

impl Tracer {
    /// Returns the roles of the existing processes, sorted.
    pub fn family(&self) -> Vec<Role> {
        let mut family: Vec<Role> = self.tasks.values().map(|task| task.role).collect();
        family.sort_unstable();
        family
    }

    /// Returns whether the zygote waits for a request.
    pub fn is_idle(&self) -> bool {
        let call = self.find(Role::Zygote).and_then(call_of);
        call.is_some_and(|call| call.is("epoll_wait"))
    }

    /// Returns whether the supervisor waits for a command.
    pub(super) fn listens(&self) -> bool {
        call_of(self.pid()).is_some_and(|call| call.is("read") && call.first == 0)
    }

    /// Returns whether the process exists.
    pub fn has(&self, pid: Pid) -> bool {
        self.tasks.contains_key(&pid)
    }

    /// Returns whether the supervisor exists.
    pub fn is_alive(&self) -> bool {
        self.tasks.contains_key(&self.pid())
    }

    /// Returns whether no process exists.
    pub fn is_over(&self) -> bool {
        self.tasks.is_empty() && self.unclaimed.is_empty()
    }

    /// Returns the youngest process of a role.
    pub fn find(&self, role: Role) -> Option<Pid> {
        let of_role = self.tasks.iter().filter(|(_, task)| task.role == role);
        of_role.map(|(pid, _)| *pid).max()
    }

    /// Returns the youngest process of a role. Of workers, only one that the command has made counts.
    pub(super) fn find_concerned(&self, role: Role) -> Option<Pid> {
        let of_worker = matches!(role, Role::Worker | Role::WorkerInit);
        let pid = self.find(role)?;
        (!of_worker || !self.tasks[&pid].is_old).then_some(pid)
    }

    /// Returns the number of a process's descriptors. Those of cgroups and network namespaces, which are kept for later
    /// workers, and a zygote's io_uring, whose memory all zygotes of a user share, do not count.
    pub fn descriptors(&self, role: Role) -> usize {
        let pid = self.find(role).expect("the process exists");
        let open = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        let targets = open
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        let is_kept = |target: &Path| {
            let text = target.to_string_lossy();
            target.starts_with("/sys/fs/cgroup")
                || text.starts_with("net:[")
                || text == "anon_inode:[io_uring]"
                || text.contains("/net/unix")
        };
        targets.filter(|target| !is_kept(target)).count()
    }
}

/// The call in which a process waits.
pub(super) struct Within {
    number: u64,
    /// Its first argument.
    pub(super) first: u64,
}

/// Reads `/proc/PID/syscall` (proc(5)), which also works for processes that do not stop at their calls.
pub(super) fn call_of(pid: Pid) -> Option<Within> {
    let text = fs::read_to_string(format!("/proc/{pid}/syscall")).ok()?;
    let mut words = text.split(' ');
    let number = words.next()?.parse().ok()?;
    let first = words.next()?.strip_prefix("0x")?;
    Some(Within {
        number,
        first: u64::from_str_radix(first, 16).ok()?,
    })
}

impl Within {
    fn is(&self, name: &str) -> bool {
        syscall_number(Arch::X86_64, name).map(u64::from) == Some(self.number)
    }
}
