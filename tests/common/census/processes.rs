//! Finds the descendants of a process (proc(5), pid_namespaces(7)).

use std::collections::HashMap;
use std::fmt;
use std::fs;

/// A process, as the kernel describes it.
#[derive(Clone, Debug)]
pub struct Process {
    pub pid: u32,
    pub parent: u32,
    /// The letter of the `State:` field: `R`, `S`, `T`, `Z`, ...
    pub state: char,
    pub name: String,
    pub role: Role,
}

/// The role of a process in the family, derived from its pid namespaces.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Role {
    /// Outside of every jail.
    Outside,
    /// Process 1 of a zygote's namespace.
    Init,
    /// A warm interpreter.
    Zygote,
    /// Process 1 of a worker's namespace.
    WorkersInit,
    /// A worker, or a process of its guest.
    Worker,
}

impl Role {
    /// Derives the role from the process ids in all namespaces, outermost first.
    fn of(numbers: &[u32], own_depth: usize) -> Self {
        let is_first = numbers.last() == Some(&1);
        match (numbers.len().saturating_sub(own_depth), is_first) {
            (0, _) => Self::Outside,
            (1, true) => Self::Init,
            (1, false) => Self::Zygote,
            (2, true) => Self::WorkersInit,
            _ => Self::Worker,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str(match self {
            Self::Outside => "outside the jails",
            Self::Init => "zygote's init",
            Self::Zygote => "zygote",
            Self::WorkersInit => "worker's init",
            Self::Worker => "worker",
        })
    }
}

impl Process {
    fn read(pid: u32, own_depth: usize) -> Option<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
        let numbers: Vec<u32> = numbers(field("NSpid:")?);
        Some(Self {
            pid,
            parent: field("PPid:")?.trim().parse().ok()?,
            state: field("State:")?.trim().chars().next()?,
            name: field("Name:")?.trim().to_owned(),
            role: Role::of(&numbers, own_depth),
        })
    }

    pub fn is_zombie(&self) -> bool {
        matches!(self.state, 'Z' | 'X')
    }

    /// Returns its namespaces by kind and number, if this user may see them.
    pub fn namespaces(&self) -> impl Iterator<Item = (String, String)> + use<> {
        let links = fs::read_dir(format!("/proc/{}/ns", self.pid)).into_iter();
        let targets = links
            .flatten()
            .flatten()
            .filter_map(|link| fs::read_link(link.path()).ok());
        targets.filter_map(|target| {
            let (kind, number) = target.to_str()?.split_once(':')?;
            Some((kind.to_owned(), number.to_owned()))
        })
    }
}

/// Returns all descendants of a process.
pub fn family(ancestor: u32) -> Vec<Process> {
    let own_depth = depth(ancestor);
    let mut children: HashMap<u32, Vec<Process>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        // A process that has ended meanwhile has no owner.
        if let Some(process) = pid.and_then(|pid| Process::read(pid, own_depth)) {
            children.entry(process.parent).or_default().push(process);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![ancestor]);
    while let Some(parent) = next.pop() {
        let born = children.remove(&parent).unwrap_or_default();
        next.extend(born.iter().map(|process| process.pid));
        found.extend(born);
    }
    found
}

/// Returns the number of nested pid namespaces that a process is in.
fn depth(pid: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    line.map_or(1, |line| numbers(line).len())
}

fn numbers(text: &str) -> Vec<u32> {
    let words = text.split_ascii_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}
