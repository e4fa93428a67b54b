//! Measures all descendants of this process by the kernel's accounting (proc(5), cgroups(7)).

#[path = "../../../tests/common/census/memory.rs"]
#[allow(dead_code, reason = "what tests read is there too")]
mod memory;
#[path = "../../../tests/common/census/processes.rs"]
#[allow(dead_code, reason = "what tests count is there too")]
mod processes;

use std::fs;
use std::path::PathBuf;

use procfs::ProcessCGroup;
use procfs::process::Process;
use sandfork::internals::host::Controller;
use sandfork::internals::plan::{CgroupPlan, CgroupVersion, Hierarchy};

use self::memory::Memory;
use self::processes::{Role, family};

/// One measurement of the workers and their zygote.
pub struct Census {
    /// Proportional set size of a worker in bytes: the median.
    pub resident: Option<u64>,
    /// What was charged to a worker's cgroup in bytes: the median.
    pub cgroup: Option<u64>,
    /// Proportional set size of the zygote in bytes.
    pub shared: Option<u64>,
    /// The number of the workers' processes.
    pub processes: u64,
}

/// The resources of this process.
#[derive(Clone, Copy, Debug)]
pub struct Own {
    pub resident: Option<u64>,
    pub descriptors: Option<u64>,
}

impl Own {
    pub fn now() -> Self {
        let own = Process::myself().ok();
        Self {
            resident: resident(std::process::id()),
            descriptors: own.and_then(|own| Some(own.fd_count().ok()? as u64)),
        }
    }
}

impl Census {
    pub fn take(cgroups: Option<&CgroupPlan>) -> Self {
        let (mut resident, mut charged, mut shared) = (Vec::new(), Vec::new(), None);
        let mut processes = 0;
        for process in family(std::process::id()) {
            match process.role {
                Role::Zygote => shared = self::resident(process.pid),
                // It shares the zygote's memory, which would be counted twice.
                Role::WorkersInit => processes += 1,
                Role::Worker => {
                    processes += 1;
                    resident.extend(self::resident(process.pid));
                    charged.extend(cgroups.and_then(|cgroups| self::charged(process.pid, cgroups)));
                }
                Role::Init | Role::Outside => {}
            }
        }
        Self {
            resident: median(resident),
            cgroup: median(charged),
            shared,
            processes,
        }
    }
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Returns the proportional set size in bytes: a page that n processes map counts as 1/n.
fn resident(pid: u32) -> Option<u64> {
    Some(Memory::read(pid)?.proportional)
}

/// Returns what the kernel charged to the process's cgroup in bytes, including kernel objects.
fn charged(pid: u32, cgroups: &CgroupPlan) -> Option<u64> {
    let of_memory = |it: &&Hierarchy| it.controllers.contains(&Controller::Memory);
    let hierarchy = cgroups.hierarchies.iter().find(of_memory)?;
    let (file, is_it): (_, fn(&ProcessCGroup) -> bool) = match cgroups.version {
        CgroupVersion::V1 => ("memory.usage_in_bytes", |own| {
            own.controllers.iter().any(|name| name == "memory")
        }),
        CgroupVersion::V2 { .. } => ("memory.current", |own| own.hierarchy == 0),
    };
    let process = Process::new(pid.cast_signed()).ok()?;
    let own = process.cgroups().ok()?.into_iter().find(is_it)?;
    let names: Vec<&str> = own
        .pathname
        .split('/')
        .filter(|name| !name.is_empty())
        .collect();
    // The path starts at the hierarchy's root, and the parent is a directory below it, so try each end of the path
    // below the parent.
    let text = (0..names.len()).rev().find_map(|from| {
        let below: PathBuf = names[from..].iter().collect();
        fs::read_to_string(hierarchy.parent.join(below).join(file)).ok()
    })?;
    text.trim().parse().ok()
}
