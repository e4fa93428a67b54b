//! Counts what a host holds for a family of supervisors: every resource that one of them could leak.
//!
//! A census is a count of each resource by kind and name, so that two of them can be compared and a
//! leaked resource can be named.

pub mod memory;
pub mod processes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use sandfork::internals::host::CgroupSupport;
use serde::Serialize;

use processes::{Process, Role};

use super::guests;

/// The kinds of counted resources.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Live descendants of the supervisors.
    Processes,
    /// Processes that ended and were not reaped.
    Zombies,
    /// Threads of the supervisors.
    Threads,
    /// Open files of the supervisors and the zygotes.
    Descriptors,
    /// Mounts in the namespaces of the host and of the zygotes.
    Mounts,
    /// Namespaces that contain a process of the family.
    Namespaces,
    /// Cgroups of the supervisors, and worker cgroups that contain processes.
    Cgroups,
    /// Empty cgroups that a sandbox keeps for later workers, and their open files.
    Spares,
    /// Files in the directories for temporary files, and files that guests made in the host's.
    Files,
    /// SysV and POSIX objects with the guests' names.
    IpcObjects,
    /// Keys with the guests' names, and the key count of each user.
    Keys,
}

/// The number of each resource.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Census(BTreeMap<Kind, BTreeMap<String, usize>>);

/// What a census covers.
pub struct Watched {
    /// The supervisors' names and process ids; the first one is this process.
    pub supervisors: Vec<(&'static str, u32)>,
    /// Where the supervisors may create cgroups.
    pub cgroups: CgroupSupport,
    /// Their private directory for temporary files.
    pub temporary: PathBuf,
}

/// The tolerated change in the users' key counts, which other programs may cause, for example a login.
const KEYS_OF_OTHERS: usize = 16;

impl Census {
    /// Takes a census. This process must be the subreaper of its descendants, so that a process that
    /// outlives its parent becomes one of its children.
    pub fn take(watched: &Watched) -> Self {
        let family = processes::family(std::process::id());
        let mut census = Self::default();
        for process in &family {
            census.add_process(process);
        }
        // Each namespace counts once, however many processes are in it. A network namespace that a zygote lends is
        // counted with the worker in it: at some moments no worker is.
        let is_lent = |process: &Process, kind: &str| kind == "net" && process.role != Role::Worker;
        let namespaces: BTreeSet<_> = family
            .iter()
            .flat_map(|process| process.namespaces().map(move |found| (process, found)))
            .filter(|(process, (kind, _))| !is_lent(process, kind))
            .map(|(_, found)| found)
            .collect();
        for (kind, _) in namespaces {
            census.add(Kind::Namespaces, kind, 1);
        }
        let cgroups = census.add_cgroups(watched);
        for (name, pid) in &watched.supervisors {
            let threads = entries(format!("/proc/{pid}/task")).count();
            census.add(Kind::Threads, *name, threads);
            census.add_descriptors(name, *pid, &cgroups);
        }
        for zygote in family.iter().filter(|process| process.role == Role::Zygote) {
            census.add_descriptors("zygote", zygote.pid, &cgroups);
            census.add_mounts("zygote", zygote.pid);
        }
        census.add_mounts("host", std::process::id());
        census.add_files(&watched.temporary);
        census.add_ipc();
        census.add_keys();
        census
    }

    /// Returns the number of resources of a kind.
    pub fn total(&self, kind: Kind) -> usize {
        self.0.get(&kind).map_or(0, |names| names.values().sum())
    }

    /// Returns the resources of which more exist than before. Spares are ignored: as many are kept as were in use at
    /// once.
    pub fn more_than(&self, before: &Self) -> Vec<String> {
        let mut more = Vec::new();
        for (kind, names) in &self.0 {
            let allowed = match kind {
                Kind::Spares => continue,
                Kind::Keys => KEYS_OF_OTHERS,
                _ => 0,
            };
            for (name, count) in names {
                let known = before.0.get(kind).and_then(|names| names.get(name));
                let known = known.copied().unwrap_or(0);
                if *count > known + allowed {
                    more.push(format!("{kind}: {name}: {count}, where there were {known}"));
                }
            }
        }
        more
    }

    /// Returns the maximum of both censuses for each resource.
    pub fn or_more(mut self, other: Self) -> Self {
        for (kind, names) in other.0 {
            let own = self.0.entry(kind).or_default();
            for (name, count) in names {
                let known = own.entry(name).or_default();
                *known = count.max(*known);
            }
        }
        self
    }

    fn add(&mut self, kind: Kind, name: impl Into<String>, count: usize) {
        *self
            .0
            .entry(kind)
            .or_default()
            .entry(name.into())
            .or_default() += count;
    }

    fn add_process(&mut self, process: &Process) {
        let Process { name, role, .. } = process;
        if process.is_zombie() {
            self.add(Kind::Zombies, format!("{name} ({role})"), 1);
            return;
        }
        self.add(Kind::Processes, format!("{name} ({role})"), 1);
    }

    /// Adds the cgroups and returns those of workers, including the ones that are empty.
    fn add_cgroups(&mut self, watched: &Watched) -> BTreeSet<PathBuf> {
        let mut of_workers = BTreeSet::new();
        for (name, pid) in &watched.supervisors {
            for root in own_cgroups(&watched.cgroups, *pid) {
                self.add(Kind::Cgroups, format!("{name}: supervisor's"), 1);
                for worker in entries(&root).filter(|path| path.is_dir()) {
                    let procs = fs::read_to_string(worker.join("cgroup.procs"));
                    if procs.is_ok_and(|procs| !procs.is_empty()) {
                        self.add(Kind::Cgroups, format!("{name}: worker's"), 1);
                    } else {
                        self.add(Kind::Spares, format!("{name}: directories"), 1);
                    }
                    of_workers.insert(worker);
                }
            }
        }
        of_workers
    }

    /// Adds open files, each file of a worker's cgroup at most once: how many of them are open depends on what its last
    /// workers have done.
    fn add_descriptors(&mut self, of: &str, pid: u32, cgroups: &BTreeSet<PathBuf>) {
        let mut seen = BTreeSet::new();
        let itself = format!("/proc/{pid}/fd");
        let targets = entries(&itself).filter_map(|path| fs::read_link(path).ok());
        for target in targets.filter(|target| target != Path::new(&itself)) {
            let of_cgroup = target.parent().is_some_and(|dir| cgroups.contains(dir));
            let of_cgroup = of_cgroup && seen.insert(target.clone());
            let text = target.to_string_lossy();
            // Network namespaces that the zygote lends, and their socket tables.
            let of_network = text.starts_with("net:[") || text.contains("/net/unix");
            // A zygote has an io_uring if the other zygotes of its user have left enough lockable memory.
            let is_ring = text == "anon_inode:[io_uring]";
            if of_cgroup || of_network || is_ring {
                self.add(Kind::Spares, format!("{of}: open files"), 1);
            } else {
                let name = without_numbers(&text);
                self.add(Kind::Descriptors, format!("{of}: {name}"), 1);
            }
        }
    }

    fn add_mounts(&mut self, of: &str, pid: u32) {
        for line in lines(format!("/proc/{pid}/mountinfo")) {
            // Ids and device numbers vary; the mount point and the type do not.
            let point = line.split(' ').nth(4).unwrap_or_default();
            let kind = line
                .split(" - ")
                .nth(1)
                .and_then(|rest| rest.split(' ').next());
            let kind = kind.unwrap_or_default();
            self.add(
                Kind::Mounts,
                format!("{of}: {kind} on {}", without_numbers(point)),
                1,
            );
        }
    }

    fn add_files(&mut self, temporary: &Path) {
        let shared = ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run"];
        let is_a_guests = |path: &PathBuf| path.to_string_lossy().contains(guests::MARK);
        let of_guests = shared.into_iter().flat_map(entries).filter(is_a_guests);
        for path in of_guests.chain(entries(temporary)) {
            self.add(Kind::Files, without_numbers(&path.to_string_lossy()), 1);
        }
    }

    fn add_ipc(&mut self) {
        let mark = guests::IPC_KEY.to_string();
        for kind in ["shm", "sem", "msg"] {
            let rows = lines(format!("/proc/sysvipc/{kind}"));
            let of_guests = rows.filter(|row| row.split_whitespace().next() == Some(&mark));
            for _ in of_guests {
                self.add(Kind::IpcObjects, kind, 1);
            }
        }
    }

    fn add_keys(&mut self) {
        let of_guests = lines("/proc/keys").filter(|row| row.contains(guests::MARK));
        self.add(
            Kind::Keys,
            "with a guest's name",
            of_guests.count() * (KEYS_OF_OTHERS + 1),
        );
        for row in lines("/proc/key-users") {
            // `0: 60 59/59 12/1000000 285/25000000`: the user id, uses, keys and instantiated keys, and quotas.
            let mut fields = row.split_whitespace();
            let user = fields.next().unwrap_or_default().trim_end_matches(':');
            let keys = fields.nth(1).and_then(|keys| keys.split('/').next());
            let keys = keys.and_then(|keys| keys.parse().ok()).unwrap_or(0);
            self.add(Kind::Keys, format!("of user {user}"), keys);
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        let name = match self {
            Self::Processes => "processes",
            Self::Zombies => "zombies",
            Self::Threads => "threads",
            Self::Descriptors => "descriptors",
            Self::Mounts => "mounts",
            Self::Namespaces => "namespaces",
            Self::Cgroups => "cgroups",
            Self::Spares => "kept for another worker",
            Self::Files => "files",
            Self::IpcObjects => "ipc objects",
            Self::Keys => "keys",
        };
        formatter.pad(name)
    }
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Processes,
        Self::Zombies,
        Self::Threads,
        Self::Descriptors,
        Self::Mounts,
        Self::Namespaces,
        Self::Cgroups,
        Self::Spares,
        Self::Files,
        Self::IpcObjects,
        Self::Keys,
    ];
}

/// Returns the directories of a supervisor in every hierarchy.
pub fn own_cgroups(support: &CgroupSupport, pid: u32) -> BTreeSet<PathBuf> {
    let parents: Vec<&Path> = match support {
        CgroupSupport::V1(controllers) => controllers.values().map(PathBuf::as_path).collect(),
        CgroupSupport::V2 { dir, .. } => vec![dir],
        CgroupSupport::Nowhere(_) => Vec::new(),
    };
    let is_of_pid = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut parts = name.split('-');
        parts.next() == Some("sandfork") && parts.nth(1) == Some(&pid.to_string())
    };
    parents
        .into_iter()
        .flat_map(entries)
        .filter(is_of_pid)
        .collect()
}

fn entries(directory: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.path())
}

fn lines(path: impl AsRef<Path>) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}

/// Removes numbers, so that `pipe:[123]` and `pipe:[456]` have the same name.
fn without_numbers(name: &str) -> String {
    let mut kept = String::new();
    for letter in name.chars() {
        if !letter.is_ascii_digit() {
            kept.push(letter);
        } else if !kept.ends_with('#') {
            kept.push('#');
        }
    }
    kept
}
