//! The limits that need looking: processor time everywhere, and memory and processes too where no
//! cgroup holds them.

use std::fs;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use super::RunLimits;
use crate::outcome::LimitName;
use crate::supervisor::cgroup::WorkerCgroup;
use crate::supervisor::ending::Stop;
use crate::supervisor::proc_dir;
use crate::supervisor::spawn::Worker;
use crate::sys::process::page_size;

/// How often the tree of a worker without a cgroup is measured.
const TICK: Duration = Duration::from_millis(20);

/// The shortest time between two looks at a cgroup's processor time.
const SHORTEST: Duration = Duration::from_millis(5);

/// What was measured over a worker's processes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Measured {
    /// Processor time, microseconds, of the processes that are there and those they waited for.
    pub cpu_us: u64,
    /// Bytes.
    pub memory: u64,
    /// Processes.
    pub pids: u64,
}

/// Watches one worker.
#[derive(Debug)]
pub struct Watch<'a> {
    cgroup: Option<&'a WorkerCgroup<'a>>,
    limits: RunLimits,
    worker: &'a Worker,
    next: Instant,
    peak: Measured,
}

impl<'a> Watch<'a> {
    /// Starts watching.
    pub fn new(
        worker: &'a Worker,
        cgroup: Option<&'a WorkerCgroup<'a>>,
        limits: RunLimits,
    ) -> Self {
        let mut watch = Self {
            cgroup,
            limits,
            worker,
            next: Instant::now(),
            peak: Measured::default(),
        };
        let counted = cgroup.is_some_and(WorkerCgroup::counts_cpu);
        watch.next += if counted { watch.interval(0) } else { TICK };
        watch
    }

    /// When to look next.
    pub fn next(&self) -> Instant {
        self.next
    }

    /// The largest values seen.
    pub fn peak(&self) -> Measured {
        self.peak
    }

    /// Looks, if it is time to.
    pub fn look(&mut self, now: Instant) -> Option<Stop> {
        if now < self.next {
            return None;
        }
        let allowed = u64::try_from(self.limits.cpu.as_micros()).unwrap_or(u64::MAX);
        if let Some(cpu_us) = self.cgroup.and_then(WorkerCgroup::cpu_us) {
            self.next = now + self.interval(cpu_us);
            return (cpu_us >= allowed).then(Stop::cpu);
        }
        let measured = self.measure();
        self.peak.cpu_us = self.peak.cpu_us.max(measured.cpu_us);
        self.peak.memory = self.peak.memory.max(measured.memory);
        self.peak.pids = self.peak.pids.max(measured.pids);
        self.next = now + TICK;
        if measured.cpu_us >= allowed {
            return Some(Stop::watchdog(LimitName::Cpu));
        }
        if self.cgroup.is_none() {
            if measured.memory > self.limits.memory && self.exact_memory() > self.limits.memory {
                return Some(Stop::watchdog(LimitName::Memory));
            }
            if measured.pids > u64::from(self.limits.pids) {
                return Some(Stop::watchdog(LimitName::Pids));
            }
        }
        None
    }

    /// The earliest that the limit could be reached, with every processor at work.
    fn interval(&self, used_us: u64) -> Duration {
        let left = self
            .limits
            .cpu
            .saturating_sub(Duration::from_micros(used_us));
        (left * 1000 / self.limits.millicores.max(1)).max(SHORTEST)
    }

    fn measure(&self) -> Measured {
        self.tree()
            .into_iter()
            .fold(Measured::default(), |sum, pid| Measured {
                cpu_us: sum.cpu_us + cpu_us(pid).unwrap_or(0),
                memory: sum.memory + resident(pid).unwrap_or(0),
                pids: sum.pids + 1,
            })
    }

    /// Every process of the worker but its init.
    fn tree(&self) -> Vec<i32> {
        let main = self.worker.proc.pid();
        // Whatever a worker's processes do, they stay beneath these two: an orphan goes to the
        // init of its pid namespace.
        let init = self.worker.init.as_ref();
        let init = init.and_then(|init| proc_dir::number(init.as_fd()).ok());
        let mut found = vec![main];
        let mut unseen: Vec<i32> = std::iter::once(main).chain(init).collect();
        while let Some(parent) = unseen.pop() {
            for child in children(parent) {
                if !found.contains(&child) {
                    found.push(child);
                    unseen.push(child);
                }
            }
        }
        found
    }

    /// Memory with each shared page counted once (`Pss`): slow to read, so only to be sure.
    fn exact_memory(&self) -> u64 {
        self.tree().into_iter().filter_map(proportional).sum()
    }
}

/// Children of a process, of all its threads (proc(5), `/proc/PID/task/TID/children`).
fn children(pid: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    tasks
        .filter_map(|task| fs::read_to_string(task.path().join("children")).ok())
        .flat_map(|text| {
            text.split_ascii_whitespace()
                .filter_map(|pid| pid.parse().ok())
                .collect::<Vec<_>>()
        })
        .collect()
}

/// Field 2 of `/proc/PID/statm`, bytes.
fn resident(pid: i32) -> Option<u64> {
    let statm = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = statm.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(pages * page_size())
}

/// `Pss` of `/proc/PID/smaps_rollup`, bytes.
fn proportional(pid: i32) -> Option<u64> {
    let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).ok()?;
    let line = rollup.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kib: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

/// Fields 14 to 17 of `/proc/PID/stat`: user and system time, own and of children waited for.
fn cpu_us(pid: i32) -> Option<u64> {
    /// `USER_HZ`, which Linux fixes at 100 for every architecture that Sandfork knows.
    const MICROSECONDS_PER_TICK: u64 = 10_000;
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields = stat
        .rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .skip(11)
        .take(4);
    let ticks: u64 = fields.filter_map(|field| field.parse::<u64>().ok()).sum();
    Some(ticks * MICROSECONDS_PER_TICK)
}
