//! Resources of all processes that descend from this one, from the kernel (proc(5), cgroups(7)).

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

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
        let open = fs::read_dir("/proc/self/fd");
        Self {
            resident: resident(std::process::id()),
            descriptors: open.ok().map(|open| open.count() as u64),
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
    fn of(numbers: &[u32], own_depth: usize) -> Self {
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
        let own = std::process::id();
        let depth = namespace_pids(own).len();
        let (mut resident, mut charged, mut shared) = (Vec::new(), Vec::new(), None);
        let mut processes = 0;
        for pid in descendants(own) {
            match Role::of(&namespace_pids(pid), depth) {
                Role::Zygote => shared = self::resident(pid),
                Role::WorkersInit => processes += 1,
                Role::Worker => {
                    processes += 1;
                    resident.extend(self::resident(pid));
                    charged.extend(cgroups.and_then(|cgroups| self::charged(pid, cgroups)));
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

/// Every descendant of the process `ancestor`.
fn descendants(ancestor: u32) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        let Some(pid) = pid else { continue };
        // A process that has ended meanwhile has no parent.
        if let Some(parent) = status(pid, "PPid:").first() {
            children.entry(*parent).or_default().push(pid);
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

fn namespace_pids(pid: u32) -> Vec<u32> {
    status(pid, "NSpid:")
}

/// The numbers of one line of `/proc/PID/status`.
fn status(pid: u32, name: &str) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let numbers = line.unwrap_or_default().split_ascii_whitespace();
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The process's proportional set size, bytes: a page that n processes map counts as 1/n.
fn resident(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kilobytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kilobytes * 1024)
}

/// What the kernel charged to the process's cgroup, bytes, including kernel objects.
fn charged(pid: u32, cgroups: &CgroupPlan) -> Option<u64> {
    let of_memory = |it: &&Hierarchy| it.controllers.contains(&Controller::Memory);
    let hierarchy = cgroups.hierarchies.iter().find(of_memory)?;
    let (controllers, file) = match cgroups.version {
        CgroupVersion::V1 => ("memory", "memory.usage_in_bytes"),
        CgroupVersion::V2 { .. } => ("", "memory.current"),
    };
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
    let names = path_of(&text, controllers)?.split('/');
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    // The path starts at the hierarchy's root, and the parent is below it: the end of the path is
    // below the parent.
    let text = (0..names.len()).rev().find_map(|from| {
        let below: PathBuf = names[from..].iter().collect();
        fs::read_to_string(hierarchy.parent.join(below).join(file)).ok()
    })?;
    text.trim().parse().ok()
}

/// `4:memory:/a/b`, or `0::/a/b` on version 2.
fn path_of<'t>(text: &'t str, controller: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let is_it = fields.next()?.split(',').any(|name| name == controller);
        fields.next().filter(|_| is_it)
    })
}
