//! The seccomp filters of a plan, with a policy's mistakes traced to where they were written.

use super::seccomp::{self, Filters, SeccompError, Surroundings};
use super::{CgroupPlan, PlanError};
use crate::host::{Controller, Machine};
use crate::policy::{Level, Located, Policy};

/// Calls that hold memory which no process's size shows. Where a cgroup counts memory they are as
/// good as any other; a watchdog would be blind to them.
const UNCOUNTED: [&str; 3] = ["memfd_create", "shmget", "msgget"];

pub(super) fn compile(
    policy: &Policy,
    machine: &Machine,
    level: Level,
    cgroup: Option<&CgroupPlan>,
) -> Result<Filters, PlanError> {
    let arch = machine.arch.ok_or(PlanError::UnknownArchitecture)?;
    let surroundings = match level {
        Level::Landlock => Surroundings::SharedHost {
            landlock_abi: machine.landlock.abi().unwrap_or(0),
        },
        Level::Standard | Level::Full => Surroundings::Namespaces,
    };
    let lists = policy.syscalls();
    let names = |list: &[Located<String>]| -> Vec<String> {
        list.iter().map(|name| name.value.clone()).collect()
    };
    let mut denied = names(&lists.deny);
    if !cgroup.is_some_and(|plan| plan.limits_by(Controller::Memory)) {
        let asked_for = names(&lists.allow);
        let uncounted = UNCOUNTED.map(str::to_owned).into_iter();
        denied.extend(uncounted.filter(|name| !asked_for.contains(name)));
    }
    seccomp::compile(arch, surroundings, &names(&lists.allow), &denied)
        .map_err(|source| locate(policy, source))
}

/// Finds the line that the error is about.
fn locate(policy: &Policy, source: SeccompError) -> PlanError {
    let lists = policy.syscalls();
    let mut named = lists.allow.iter().chain(&lists.deny);
    let origin = named
        .find(|name| name.value == source.syscall())
        .map(|name| name.origin.clone());
    PlanError::Syscall {
        origin: origin.unwrap_or_else(|| policy.require_origin().clone()),
        source,
    }
}
