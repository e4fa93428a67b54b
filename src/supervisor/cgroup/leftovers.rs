//! The memory that a finished run leaves charged to its cgroup.
//!
//! When the cgroup is removed, the kernel charges this memory to the parent cgroup, and frees it
//! when the host needs memory. File pages are useful to later runs. Negative dentries (names that a
//! guest looked up in vain) are not: a guest makes 100,000 of them in a second, and every lookup of
//! the host then searches among them.

use std::path::PathBuf;
use std::thread;

use super::files;
use super::worker::Made;
use crate::host::Controller;
use crate::plan::CgroupPlan;
use crate::supervisor::proc_dir;

/// Kernel memory that a removed cgroup may pass on, bytes: about 5,000 names.
const MOST_KERNEL_MEMORY: u64 = 1 << 20;

/// Removes an empty cgroup, after reclaiming its kernel memory if there is much of it. Reclaiming
/// takes 0.2 s for 300,000 names, so it runs in its own thread and delays no caller.
pub fn remove(made: Made, plan: &CgroupPlan) {
    let version = plan.version;
    let Some((dir, charged)) = mostly_kernel_memory(&made, plan) else {
        return drop(made);
    };
    let builder = thread::Builder::new().name("reclaim".into());
    // Without a thread to spare, the cgroup is removed as it is: the closure drops it.
    _ = builder.spawn(move || {
        // If the kernel lacks the file or cannot reclaim everything, the rest stays until the host
        // needs memory.
        _ = files::reclaim(version, &dir, charged);
        drop(made);
    });
}

/// The directory of a cgroup whose charged memory is mostly kernel memory, and how much is charged.
fn mostly_kernel_memory(made: &Made, plan: &CgroupPlan) -> Option<(PathBuf, u64)> {
    let mut places = plan.hierarchies.iter().zip(&made.dirs);
    let (_, dir) =
        places.find(|(hierarchy, _)| hierarchy.controllers.contains(&Controller::Memory))?;
    let charged = proc_dir::read(&dir.join(files::memory_charged(plan.version))).ok()?;
    let charged = charged.trim().parse().ok()?;
    // Read only if needed: on version 2 the kernel sums it up over all processors.
    let is_worth_it = charged > MOST_KERNEL_MEMORY
        && is_mostly_kernel_memory(charged, files::kernel_memory(plan.version, dir)?);
    is_worth_it.then(|| (dir.clone(), charged))
}

/// Reclaiming also takes file pages, which the next run would have to read from disk again.
fn is_mostly_kernel_memory(charged: u64, kernel: u64) -> bool {
    kernel > MOST_KERNEL_MEMORY && kernel > charged / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_reclaimed_and_files_are_kept() {
        let mib = |n: u64| n << 20;
        assert!(is_mostly_kernel_memory(mib(60), mib(58)));
        assert!(!is_mostly_kernel_memory(mib(60), mib(4)), "a large import");
        assert!(!is_mostly_kernel_memory(mib(1), mib(1)), "a small run");
    }
}
