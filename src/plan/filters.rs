//! Compiles the seccomp filters of a plan, and traces errors in a policy's lists to their lines.

use super::CgroupPlan;
use super::seccomp::{
    self, Filters, HOST_WRITES, SeccompError, Surroundings, UNCOUNTED, compile_with,
};
use crate::error::Error;
use crate::host::{Arch, Controller, Machine};
use crate::policy::{Level, Located, NetworkMode, Policy};

/// Calls that allocate memory which is not part of any process's size. Without a memory cgroup they are denied, unless
/// the policy allows them: a cgroup counts that memory, but the watchdog cannot see it. The size of a Landlock ruleset
/// is bounded only by the number of ports.
const WITHOUT_SIZE: [&str; 4] = [
    "memfd_create",
    "shmget",
    "msgget",
    "landlock_create_ruleset",
];

/// Calls that flush written data to disk. They matter only if the guest may write to files that outlive it.
const DURABILITY: [&str; 3] = ["fsync", "fdatasync", "sync_file_range"];

/// Whether workers share a uid, and with it the kernel's per-user count of epoll watches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WorkerUids {
    /// Each worker has a separate uid and count.
    Separate,
    /// All workers share the uid and count with each other and with the user's other processes.
    Shared,
}

pub(super) fn compile(
    policy: &Policy,
    machine: &Machine,
    level: Level,
    cgroup: Option<&CgroupPlan>,
    uids: WorkerUids,
) -> Result<Filters, Error> {
    let arch = known_arch(machine)?;
    let surroundings = match level {
        Level::Landlock => Surroundings::SharedHost {
            landlock_abi: machine.landlock.abi().unwrap_or(0),
        },
        Level::Standard | Level::Full => match policy.network.mode.value {
            NetworkMode::None => Surroundings::Namespaces,
            NetworkMode::Loopback | NetworkMode::Allow => Surroundings::Loopback,
        },
    };
    let lists = &policy.syscalls;
    let mut allowed: Vec<String> = names(&lists.allow).map(str::to_owned).collect();
    let mut stricter = Vec::new();
    if !policy.filesystem.write.is_empty() {
        allowed.extend(DURABILITY.map(str::to_owned));
        stricter.extend(HOST_WRITES);
    }
    if uids == WorkerUids::Separate {
        allowed.push("epoll_ctl".to_owned());
    }
    let mut denied: Vec<String> = names(&lists.deny).map(str::to_owned).collect();
    if !cgroup.is_some_and(|plan| plan.limits_by(Controller::Memory)) {
        let without = WITHOUT_SIZE.map(str::to_owned).into_iter();
        denied.extend(without.filter(|name| !allowed.contains(name)));
        stricter.extend(UNCOUNTED);
    }
    compile_with(arch, surroundings, &allowed, &denied, &stricter)
        .map_err(|source| locate(policy, &source))
}

/// Returns the errors in a policy's lists of system calls that do not depend on the host.
pub fn check_syscalls(policy: &Policy) -> Vec<Error> {
    let lists = &policy.syscalls;
    let errors = seccomp::check(names(&lists.allow), names(&lists.deny));
    errors
        .into_iter()
        .map(|source| locate(policy, &source))
        .collect()
}

fn names(list: &[Located<String>]) -> impl Iterator<Item = &str> {
    list.iter().map(|name| name.value.as_str())
}

/// Adds the policy line to an error.
fn locate(policy: &Policy, source: &SeccompError) -> Error {
    let lists = &policy.syscalls;
    let mut named = lists.allow.iter().chain(&lists.deny);
    let origin = named
        .find(|name| name.value == source.name)
        .map_or(policy.require_origin(), |name| &name.origin);
    Error::policy(format!("{}{source}", origin.lead()))
}

/// Returns the architecture for which filters are compiled.
pub(super) fn known_arch(machine: &Machine) -> Result<Arch, Error> {
    let unknown = "Sandfork has no system call table for this processor: run on x86_64 or aarch64";
    machine.arch.ok_or_else(|| Error::host(unknown))
}
