//! What runs could leave behind, looked at from the process that embeds the library.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, waitpid};

use sandfork::host::CgroupSupport;

/// Everything of this process and this user that could grow.
#[derive(Debug, Eq, PartialEq)]
pub struct Traces {
    descriptors: BTreeSet<String>,
    threads: usize,
    mounts: BTreeSet<String>,
    files: BTreeSet<PathBuf>,
    ipc: BTreeSet<String>,
    cgroups: BTreeSet<PathBuf>,
}

impl Traces {
    /// Looks. This process must be the subreaper of what it starts, so that whatever outlives its
    /// parent becomes a child of this process and is seen by [`Traces::no_processes`].
    pub fn look(cgroups: &CgroupSupport) -> Self {
        // A thread that has been joined is listed for a moment longer.
        wait_until(|| entries("/proc/self/task").count() == 1);
        Self {
            descriptors: descriptors(),
            threads: entries("/proc/self/task").count(),
            mounts: lines("/proc/self/mountinfo").collect(),
            files: temporary_files(),
            ipc: ipc_objects(),
            cgroups: own_cgroups(cgroups, std::process::id()),
        }
    }

    /// That nothing has been added since, or has gone within a second.
    #[track_caller]
    pub fn assert_same(&self, cgroups: &CgroupSupport) {
        wait_until(|| Self::look(cgroups) == *self);
        assert_eq!(*self, Self::look(cgroups));
    }

    /// That this process has no children, alive or dead.
    #[track_caller]
    pub fn no_processes() {
        let none = || {
            matches!(
                waitpid(None, Some(WaitPidFlag::WNOHANG)),
                Err(Errno::ECHILD)
            )
        };
        assert!(
            wait_until(none),
            "children are left: {:?}",
            children(std::process::id())
        );
    }
}

/// Whether something comes true within a second.
pub fn wait_until(holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(1);
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// The children of a process, of all its threads.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = entries(format!("/proc/{pid}/task"));
    let texts = tasks.filter_map(|task| fs::read_to_string(task.join("children")).ok());
    texts
        .flat_map(|text| {
            text.split_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// The directories of a supervisor in every hierarchy, with those of its workers.
pub fn own_cgroups(support: &CgroupSupport, pid: u32) -> BTreeSet<PathBuf> {
    let parents: Vec<&Path> = match support {
        CgroupSupport::V1 { controllers } => controllers.values().map(PathBuf::as_path).collect(),
        CgroupSupport::V2 { dir, .. } => vec![dir],
        CgroupSupport::Nowhere { .. } => Vec::new(),
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

fn descriptors() -> BTreeSet<String> {
    let number = |path: PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
    // The one that lists them is closed by the time that it is read.
    let open = entries("/proc/self/fd").filter_map(|path| {
        let target = fs::read_link(&path).ok()?;
        Some(format!("{} {}", number(path)?, target.display()))
    });
    open.collect()
}

/// What is in this process's own temporary directory, and what a guest made in those of the host.
fn temporary_files() -> BTreeSet<PathBuf> {
    let shared = ["/tmp", "/var/tmp", "/dev/shm", "/dev/mqueue", "/run"].map(PathBuf::from);
    let is_a_guests = |path: &PathBuf| path.to_string_lossy().contains(super::guests::MARK);
    let own = entries(std::env::temp_dir());
    shared
        .into_iter()
        .flat_map(entries)
        .filter(is_a_guests)
        .chain(own)
        .collect()
}

/// SysV objects, by their keys: shared memory, semaphores, message queues.
fn ipc_objects() -> BTreeSet<String> {
    let mark = super::guests::IPC_KEY.to_string();
    let of_kind = |kind: &'static str| {
        let rows = lines(format!("/proc/sysvipc/{kind}")).skip(1);
        rows.map(move |row| format!("{kind} {}", row.split_whitespace().next().unwrap_or("")))
    };
    let objects = ["shm", "sem", "msg"].into_iter().flat_map(of_kind);
    objects.filter(|object| object.ends_with(&mark)).collect()
}

fn entries(directory: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}

fn lines(path: impl AsRef<Path>) -> impl Iterator<Item = String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(str::to_owned)
        .collect::<Vec<_>>()
        .into_iter()
}
