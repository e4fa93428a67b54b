//! The seccomp filters of a plan. Errors in a policy's lists are traced to their lines.

use super::CgroupPlan;
use super::seccomp::{
    self, Filters, HOST_WRITES, SeccompError, Surroundings, UNCOUNTED, compile_with,
};
use crate::error::Error;
use crate::host::{Arch, Controller, Machine};
use crate::policy::{Level, Located, NetworkMode, Policy};

/// Calls that allocate memory outside every process's size. A cgroup counts that memory, so with
/// one they are allowed like other calls. A watchdog would not see it. The rules of a Landlock ruleset have no other
/// bound than their number of ports.
const WITHOUT_SIZE: [&str; 4] = [
    "memfd_create",
    "shmget",
    "msgget",
    "landlock_create_ruleset",
];

/// Calls that flush written data to disk. They have an effect only if the guest may write to files
/// that outlive it.
const DURABILITY: [&str; 3] = ["fsync", "fdatasync", "sync_file_range"];

/// Which workers share the kernel's per-user count of watches.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum WorkerUids {
    /// Each worker has a uid of its own and shares the count with no other.
    EachItsOwn,
    /// All workers share it, together with everything else that the user runs.
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
    if uids == WorkerUids::EachItsOwn {
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

/// What every host refuses in a policy's lists of system calls.
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

/// Finds the policy line that the error is about.
fn locate(policy: &Policy, source: &SeccompError) -> Error {
    let lists = &policy.syscalls;
    let mut named = lists.allow.iter().chain(&lists.deny);
    let origin = named
        .find(|name| name.value == source.name)
        .map_or(policy.require_origin(), |name| &name.origin);
    Error::policy(format!("{}{source}", origin.lead()))
}

/// The architecture for which filters are compiled.
pub(super) fn known_arch(machine: &Machine) -> Result<Arch, Error> {
    let unknown = "Sandfork has no system call table for this processor: run on x86_64 or aarch64";
    machine.arch.ok_or_else(|| Error::host(unknown))
}
