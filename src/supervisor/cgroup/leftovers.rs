//! Reclaims the memory that a finished run leaves charged to its cgroup.
//!
//! When the cgroup is removed, the kernel charges this memory to the parent cgroup, and frees it when the host needs
//! memory. File pages are useful to later runs. Negative dentries (names that a guest looked up in vain) are not: a
//! guest can create 100,000 of them per second, and they slow down every path lookup of the host.

use std::path::PathBuf;
use std::thread;

use super::files;
use super::worker::Made;
use crate::host::Controller;
use crate::plan::CgroupPlan;
use crate::supervisor::proc_dir;

/// The kernel memory that a removed cgroup may pass on, in bytes: about 5,000 names.
const MAX_KERNEL_MEMORY: u64 = 1 << 20;

/// Removes an empty cgroup. If much kernel memory is charged to it, a thread reclaims that first, because reclaiming
/// takes 0.2 s for 300,000 names and must not delay the caller.
pub fn remove(made: Made, plan: &CgroupPlan) {
    let version = plan.version;
    let Some((dir, charged)) = mostly_kernel_memory(&made, plan) else {
        return drop(made);
    };
    let builder = thread::Builder::new().name("reclaim".into());
    // If no thread can be spawned, dropping the closure removes the cgroup without reclaiming.
    _ = builder.spawn(move || {
        // If the kernel lacks the file or cannot reclaim everything, the rest stays until the host needs memory.
        _ = files::reclaim(version, &dir, charged);
        drop(made);
    });
}

/// Returns the directory and the charged bytes of a cgroup whose charge is mostly kernel memory.
fn mostly_kernel_memory(made: &Made, plan: &CgroupPlan) -> Option<(PathBuf, u64)> {
    let mut places = plan.hierarchies.iter().zip(&made.dirs);
    let (_, dir) =
        places.find(|(hierarchy, _)| hierarchy.controllers.contains(&Controller::Memory))?;
    let charged = proc_dir::read(&dir.join(files::memory_charged(plan.version))).ok()?;
    let charged = charged.trim().parse().ok()?;
    // Read only if needed: on version 2 the kernel sums it up over all CPUs.
    let is_worth_it = charged > MAX_KERNEL_MEMORY
        && is_mostly_kernel_memory(charged, files::kernel_memory(plan.version, dir)?);
    is_worth_it.then(|| (dir.clone(), charged))
}

/// Whether reclaiming pays off. It also drops file pages, which the next run would have to read from disk again.
fn is_mostly_kernel_memory(charged: u64, kernel: u64) -> bool {
    kernel > MAX_KERNEL_MEMORY && kernel > charged / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_kernel_memory_is_reclaimed() {
        let mib = |n: u64| n << 20;
        assert!(is_mostly_kernel_memory(mib(60), mib(58)));
        assert!(!is_mostly_kernel_memory(mib(60), mib(4)), "a large import");
        assert!(!is_mostly_kernel_memory(mib(1), mib(1)), "a small run");
    }
}
