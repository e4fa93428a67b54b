//! Resources of all processes that descend from this one, from the kernel (proc(5), cgroups(7)).

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use procfs::ProcessCGroup;
use procfs::process::{Process, all_processes};
use sandfork::internals::host::Controller;
use sandfork::internals::plan::{CgroupPlan, CgroupVersion, Hierarchy};

/// One measurement of the workers and their zygote.
pub struct Census {
    /// Proportional set size of a worker, bytes: the median.
    pub resident: Option<u64>,
    /// What was charged to a worker's cgroup, bytes: the median.
    pub cgroup: Option<u64>,
    /// Proportional set size of the zygote, bytes.
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
            resident: own.as_ref().and_then(resident),
            descriptors: own.and_then(|own| Some(own.fd_count().ok()? as u64)),
        }
    }
}

/// The role of a process, by its numbers in its pid namespaces: outermost first, this process's
/// included.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Role {
    Zygote,
    Worker,
    /// A worker's init. It shares the zygote's memory, which would be counted twice.
    WorkersInit,
    Other,
}

impl Role {
    fn of(numbers: &[i32], own_depth: usize) -> Self {
        let number = numbers.last();
        match numbers.len().saturating_sub(own_depth) {
            1 if number != Some(&1) => Self::Zygote,
            2 if number == Some(&1) => Self::WorkersInit,
            2 => Self::Worker,
            _ => Self::Other,
        }
    }
}

impl Census {
    pub fn take(cgroups: Option<&CgroupPlan>) -> Self {
        let own = std::process::id().cast_signed();
        let depth = Process::new(own).map_or(0, |own| namespace_pids(&own).len());
        let (mut resident, mut charged, mut shared) = (Vec::new(), Vec::new(), None);
        let mut processes = 0;
        for process in descendants(own).into_iter().filter_map(open) {
            match Role::of(&namespace_pids(&process), depth) {
                Role::Zygote => shared = self::resident(&process),
                Role::WorkersInit => processes += 1,
                Role::Worker => {
                    processes += 1;
                    resident.extend(self::resident(&process));
                    charged.extend(cgroups.and_then(|cgroups| self::charged(&process, cgroups)));
                }
                Role::Other => {}
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

/// The process of a number, unless it has ended meanwhile.
fn open(pid: i32) -> Option<Process> {
    Process::new(pid).ok()
}

/// Every descendant of the process `ancestor`, as numbers: each open `Process` holds a descriptor, and the
/// sessions leave none for two thousand.
fn descendants(ancestor: i32) -> Vec<i32> {
    let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
    for process in all_processes().into_iter().flatten().flatten() {
        // A process that has ended meanwhile has no parent.
        if let Ok(stat) = process.stat() {
            children.entry(stat.ppid).or_default().push(process.pid());
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![ancestor]);
    while let Some(parent) = next.pop() {
        let born = children.remove(&parent).unwrap_or_default();
        next.extend(&born);
        found.extend(born);
    }
    found
}

fn namespace_pids(process: &Process) -> Vec<i32> {
    let status = process.status().ok();
    status.and_then(|status| status.nspid).unwrap_or_default()
}

/// The process's proportional set size, bytes: a page that n processes map counts as 1/n.
fn resident(process: &Process) -> Option<u64> {
    let rollup = process.smaps_rollup().ok()?.memory_map_rollup;
    rollup.into_iter().next()?.extension.map.get("Pss").copied()
}

/// What the kernel charged to the process's cgroup, bytes, including kernel objects.
fn charged(process: &Process, cgroups: &CgroupPlan) -> Option<u64> {
    let of_memory = |it: &&Hierarchy| it.controllers.contains(&Controller::Memory);
    let hierarchy = cgroups.hierarchies.iter().find(of_memory)?;
    let (file, is_it): (_, fn(&ProcessCGroup) -> bool) = match cgroups.version {
        CgroupVersion::V1 => ("memory.usage_in_bytes", |own| {
            own.controllers.iter().any(|name| name == "memory")
        }),
        CgroupVersion::V2 { .. } => ("memory.current", |own| own.hierarchy == 0),
    };
    let own = process.cgroups().ok()?.into_iter().find(is_it)?;
    let names: Vec<&str> = own
        .pathname
        .split('/')
        .filter(|name| !name.is_empty())
        .collect();
    // The path starts at the hierarchy's root, and the parent is below it: the end of the path is
    // below the parent.
    let text = (0..names.len()).rev().find_map(|from| {
        let below: PathBuf = names[from..].iter().collect();
        fs::read_to_string(hierarchy.parent.join(below).join(file)).ok()
    })?;
    text.trim().parse().ok()
}
