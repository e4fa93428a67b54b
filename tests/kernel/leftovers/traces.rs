//! Records what runs could leave behind, as seen from the process that embeds the library.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::wait::{WaitPidFlag, waitpid};

use sandfork::internals::host::CgroupSupport;

pub use crate::census::own_cgroups;
use crate::census::{Census, Watched};

/// Every resource of this process and this user that could leak.
#[derive(Debug)]
pub struct Traces(Census);

impl Traces {
    /// Records the resources while this is the only thread. This process must be the subreaper of its
    /// descendants, so that a process that outlives its parent becomes its child and is found by
    /// [`Traces::no_processes`].
    pub fn record(cgroups: &CgroupSupport) -> Self {
        // A joined thread stays listed for a moment.
        assert!(wait_until(|| entries("/proc/self/task").count() == 1));
        Self::record_beside_threads(cgroups)
    }

    /// Records the resources of a process with a live session or pool.
    pub fn record_beside_threads(cgroups: &CgroupSupport) -> Self {
        Self(Census::take(&Watched {
            supervisors: vec![("supervisor", std::process::id())],
            cgroups: cgroups.clone(),
            temporary: std::env::temp_dir(),
        }))
    }

    /// Asserts that nothing has been added, or that it disappears in time.
    #[track_caller]
    pub fn assert_same(&self, cgroups: &CgroupSupport) {
        let more = || Self::record_beside_threads(cgroups).0.more_than(&self.0);
        wait_until(|| more().is_empty());
        assert_eq!(more(), Vec::<String>::new());
    }

    /// Asserts that this process has no children, running or zombie.
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

/// Waits until the condition holds. Returns false after a timeout that allows for a busy machine.
pub fn wait_until(holds: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        if Instant::now() > deadline {
            return false;
        }
        thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Returns the children of a process, of all its threads.
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

/// Returns all descendants of this process.
pub fn descendants() -> Vec<u32> {
    let mut found = children(std::process::id());
    let mut next = 0;
    while let Some(pid) = found.get(next) {
        found.extend(children(*pid));
        next += 1;
    }
    found
}

fn entries(directory: impl AsRef<Path>) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
}
