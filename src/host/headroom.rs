//! Measures the host's free resources, so that no more is started than it can hold.

use std::fs;

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

use super::Controller;
use super::HostUser;
use super::cgroup::room;

/// Free resources; `u64::MAX` for a resource without a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Headroom {
    /// Bytes available without swapping (`MemAvailable` of proc_meminfo(5)), or fewer if a cgroup of this process
    /// allows fewer.
    pub memory: u64,
    /// Processes and threads that the guests' user may still create (`RLIMIT_NPROC` minus its current number), or fewer
    /// if the kernel or a cgroup allows fewer.
    pub tasks: u64,
    /// Descriptors that this process may still open (`RLIMIT_NOFILE`).
    pub descriptors: u64,
}

impl Headroom {
    /// Measures now. Reads the status of every process on the host, and reserves nothing.
    pub fn now() -> Self {
        Self {
            memory: memory_left(),
            tasks: tasks_left(),
            descriptors: descriptors_left(),
        }
    }
}

/// Measures [`Headroom::memory`] alone.
pub fn memory_left() -> u64 {
    let available = field(&read("/proc/meminfo"), "MemAvailable:").and_then(kibibytes);
    let bounds = [available, room(Controller::Memory)];
    bounds.into_iter().flatten().min().unwrap_or(u64::MAX)
}

fn tasks_left() -> u64 {
    let number = |path| read(path).trim().parse::<u64>().ok();
    let most = [
        number("/proc/sys/kernel/threads-max"),
        number("/proc/sys/kernel/pid_max"),
    ];
    let running = tasks_running(&read("/proc/loadavg")).unwrap_or(0);
    let machine_left = most
        .into_iter()
        .flatten()
        .min()
        .map(|most| most.saturating_sub(running));
    let user_left = tasks_left_of_user(soft(Resource::RLIMIT_NPROC));
    let bounds = [user_left, machine_left, room(Controller::Pids)];
    bounds.into_iter().flatten().min().unwrap_or(u64::MAX)
}

/// Measures [`Headroom::descriptors`] alone.
pub fn descriptors_left() -> u64 {
    soft(Resource::RLIMIT_NOFILE).saturating_sub(entries("/proc/self/fd"))
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn soft(resource: Resource) -> u64 {
    match getrlimit(resource) {
        Ok((soft, _)) if soft != RLIM_INFINITY => soft,
        _ => u64::MAX,
    }
}

fn entries(directory: &str) -> u64 {
    fs::read_dir(directory).map_or(0, |entries| entries.count() as u64)
}

/// Returns how many tasks a limit leaves to the guests' host user. The kernel counts everything that this user runs on
/// the host, including threads.
fn tasks_left_of_user(limit: u64) -> Option<u64> {
    if limit == u64::MAX {
        return None;
    }
    let user = HostUser::probe().ok()?;
    let uid = user.drop_to.map_or(user.uid, |ids| ids.uid);
    let of_process = |entry: fs::DirEntry| {
        let number = entry
            .file_name()
            .to_string_lossy()
            .bytes()
            .all(|it| it.is_ascii_digit());
        let status = number.then(|| fs::read_to_string(entry.path().join("status")).ok())??;
        threads_of(uid, &status)
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let running: u64 = processes.filter_map(of_process).sum();
    Some(limit.saturating_sub(running))
}

/// Returns how many threads a process has, if its real uid is this one (proc_pid_status(5)).
fn threads_of(uid: u32, status: &str) -> Option<u64> {
    let real: u32 = field(status, "Uid:")?
        .split_ascii_whitespace()
        .next()?
        .parse()
        .ok()?;
    let threads = field(status, "Threads:")?.trim().parse().ok()?;
    (real == uid).then_some(threads)
}

/// Returns the number of tasks on the machine: the number after the slash in proc_loadavg(5).
fn tasks_running(loadavg: &str) -> Option<u64> {
    let of_all = loadavg.split_ascii_whitespace().nth(3)?.split_once('/')?.1;
    of_all.parse().ok()
}

pub(super) fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name))
}

pub(super) fn kibibytes(text: &str) -> Option<u64> {
    let count: u64 = text.trim().strip_suffix("kB")?.trim().parse().ok()?;
    count.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_formats_are_parsed() {
        let meminfo = "MemTotal:  24684084 kB\nMemFree: 1 kB\nMemAvailable:   2048 kB\n";
        assert_eq!(
            field(meminfo, "MemAvailable:").and_then(kibibytes),
            Some(2 << 20)
        );
        assert_eq!(tasks_running("0.45 1.21 1.79 1/87 5541\n"), Some(87));
        let status = "Name:\tsh\nUid:\t1000\t1000\t1000\t1000\nThreads:\t3\n";
        assert_eq!(threads_of(1000, status), Some(3));
        assert_eq!(threads_of(0, status), None);
        assert_eq!(threads_of(0, ""), None);
    }

    #[test]
    fn this_machine_has_headroom() {
        let headroom = Headroom::now();
        assert!(
            headroom.memory > 1 << 20 && headroom.memory < u64::MAX,
            "{headroom:?}"
        );
        assert!(
            headroom.tasks > 0 && headroom.tasks < u64::MAX,
            "{headroom:?}"
        );
        assert!(headroom.descriptors > 0, "{headroom:?}");
        let user = HostUser::probe().expect("it is there");
        let own = fs::read_to_string("/proc/self/status").expect("it is there");
        assert!(threads_of(user.uid, &own).is_some_and(|threads| threads > 0));
    }
}
