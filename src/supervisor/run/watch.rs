//! Polls the limits that need it: CPU time always, memory and processes without a cgroup, files without a file system
//! quota, and the number of sockets with a loopback interface.

use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::unistd::Pid;

use super::RunContext;
use crate::outcome::{LimitName, Mechanism};
use crate::plan::FileQuota;
use crate::policy::Limits;
use crate::supervisor::cgroup::WorkerCgroup;
use crate::supervisor::clock;
use crate::supervisor::ending::Stop;
use crate::supervisor::proc_dir::own_share;
use crate::supervisor::session_dir::SessionDirectory;
use crate::supervisor::sockets::Sockets;
use crate::supervisor::verified_worker::VerifiedWorker;
use crate::supervisor::verify::data_limit;
use sandfork_jail::sys::procfs;

/// The interval at which the processes of a worker without a cgroup are measured.
const TICK: Duration = Duration::from_millis(20);

/// That interval in a waiting session: code that the last cell left running is watched too, but less closely.
const WAITING_TICK: Duration = Duration::from_millis(250);

/// The shortest time between two reads of a cgroup's CPU time.
const MIN_INTERVAL: Duration = Duration::from_millis(5);

/// The interval at which a session's files are measured, if a measurement is quick.
const FILES_TICK: Duration = Duration::from_millis(50);

/// The largest share of the time that measuring files may take: one part in `FILES_SHARE`.
const FILES_SHARE: u32 = 20;

/// The longest time between two measurements of the files, regardless of their number.
const MAX_FILES_INTERVAL: Duration = Duration::from_secs(1);

/// A read that takes longer than this suggests a fork bomb, because reading a process's mappings waits while the
/// process forks. Measuring all of its processes would give it too much time.
const SLOW_READ: Duration = Duration::from_millis(10);

/// The longest time for one measurement of the files. Each process that forks is waited for, possibly with little CPU
/// time, and the clocks are not checked meanwhile.
const MAX_FILES_CHECK: Duration = Duration::from_millis(100);

/// `USER_HZ`, which Linux fixes at 100 for every architecture that Sandfork knows.
const MICROSECONDS_PER_TICK: u64 = 10_000;

/// The measurements of a worker's processes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Measured {
    /// CPU time of the live processes and of the children they waited for, microseconds.
    pub cpu_us: u64,
    /// Memory, bytes.
    pub memory: u64,
    /// Tasks: processes and threads.
    pub pids: u64,
}

/// The watchdog of one worker.
#[derive(Debug)]
pub struct Watch<'a> {
    cgroup: Option<&'a WorkerCgroup>,
    session: Option<&'a SessionDirectory>,
    sockets: Option<&'a Sockets>,
    /// The limits of the run.
    pub limits: Limits,
    proc: BorrowedFd<'a>,
    main: Pid,
    /// The process that adopts the worker's orphans: all of the worker's processes descend from it or from the main
    /// process.
    above: Pid,
    next_processes: Instant,
    next_files: Instant,
    next_sockets: Instant,
    peak: Measured,
    /// The CPU time that had been used when the count was last restarted, microseconds.
    cpu_before: u64,
    /// The time that the supervisor has spent on the guest's requests since then.
    charged: Duration,
    pace: Pace,
}

/// How closely a worker is watched.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Pace {
    /// The worker runs a cell.
    Running,
    /// The worker waits for a cell. Code that the last cell left running may still run.
    Waiting,
}

impl Pace {
    fn tick(self) -> Duration {
        match self {
            Self::Running => TICK,
            Self::Waiting => WAITING_TICK,
        }
    }
}

impl<'a> Watch<'a> {
    /// Starts watching through `/proc`.
    pub fn new(verified: &'a VerifiedWorker, context: &RunContext<'a>) -> Self {
        let (worker, cgroup) = (&verified.worker, verified.cgroup.as_ref());
        let now = clock::now();
        let mut watch = Self {
            cgroup,
            session: verified.session.as_ref(),
            sockets: verified.sockets.as_ref(),
            limits: context.limits,
            proc: context.zygote.proc.as_fd(),
            main: Pid::from_raw(worker.proc.pid),
            above: Pid::from_raw(worker.above_pid),
            next_processes: now,
            next_files: now + FILES_TICK,
            next_sockets: now + TICK,
            peak: Measured::default(),
            cpu_before: 0,
            charged: Duration::ZERO,
            pace: Pace::Running,
        };
        let counted = cgroup.is_some_and(WorkerCgroup::counts_cpu);
        watch.next_processes += if counted { watch.interval(0) } else { TICK };
        watch
    }

    /// Returns when the next measurement is due.
    pub fn next(&self) -> Instant {
        let files = self.session.map(|_| self.next_files);
        let sockets = self.sockets.map(|_| self.next_sockets);
        let others = files.into_iter().chain(sockets);
        others.fold(self.next_processes, Instant::min)
    }

    /// Whether a process is in the process group of the worker's main process.
    pub fn has_in_group(&self, process: Pid) -> bool {
        procfs::stat(self.proc, process).is_ok_and(|stat| stat.group == self.main)
    }

    /// Returns the largest values measured. The CPU time is that since the count was last restarted.
    pub fn since_restart(&self) -> Measured {
        Measured {
            cpu_us: self.peak.cpu_us.saturating_sub(self.cpu_before),
            ..self.peak
        }
    }

    /// Restarts the count of CPU time, at the start and the end of a cell. `counted` is the cgroup's count so far, if
    /// known, and `allowed` the CPU time that may be used from now on.
    pub fn restart(&mut self, pace: Pace, now: Instant, counted: Option<u64>, allowed: Duration) {
        self.limits = self.limits.with_time(LimitName::Cpu, allowed);
        self.pace = pace;
        let counted = counted.or_else(|| self.cgroup.and_then(WorkerCgroup::cpu_us));
        self.cpu_before = counted.unwrap_or(self.peak.cpu_us);
        self.charged = Duration::ZERO;
        let first = match counted {
            Some(_) => self.interval(0),
            None => pace.tick(),
        };
        self.next_processes = now + first;
        self.next_files = now + FILES_TICK.max(pace.tick());
        self.next_sockets = now + pace.tick();
    }

    /// Charges time that the supervisor has spent for the guest to the guest's CPU limit.
    pub fn charge(&mut self, spent: Duration) {
        self.charged += spent;
        self.next_processes -= self.shortest_time(spent);
    }

    /// Measures what is due. Returns the exceeded limit, if any.
    pub fn check(&mut self, now: Instant) -> Option<Stop> {
        let files_due = self.session.is_some() && now >= self.next_files;
        if let Some(over) = self.check_sockets(now) {
            return Some(over);
        }
        if now < self.next_processes && !files_due {
            return None;
        }
        // Processes first: if there are too many, measuring the files of each takes too long.
        let over = self.check_processes(now);
        over.or_else(|| files_due.then(|| self.check_files())?)
    }

    fn check_processes(&mut self, now: Instant) -> Option<Stop> {
        let allowed = self.limits.cpu().saturating_sub(self.charged).as_micros();
        let allowed = u64::try_from(allowed).unwrap_or(u64::MAX);
        if let Some(cpu_us) = self.cgroup.and_then(WorkerCgroup::cpu_us) {
            let used = cpu_us.saturating_sub(self.cpu_before);
            self.next_processes = now + self.interval(used);
            return (used >= allowed).then(|| Stop::limit(LimitName::Cpu, Mechanism::Cgroup));
        }
        let tree = self.tree();
        if self.cgroup.is_none() && tree.len() as u64 > self.limits.pids() {
            // Counted before any process is read: a fork bomb leaves the supervisor little CPU time.
            self.peak.pids = self.peak.pids.max(tree.len() as u64);
            return Some(Stop::watchdog(LimitName::Pids));
        }
        let measured = self.measure(tree);
        self.peak.cpu_us = self.peak.cpu_us.max(measured.cpu_us);
        self.peak.memory = self.peak.memory.max(measured.memory);
        self.peak.pids = self.peak.pids.max(measured.pids);
        self.next_processes = now + self.pace.tick();
        if measured.cpu_us.saturating_sub(self.cpu_before) >= allowed {
            return Some(Stop::watchdog(LimitName::Cpu));
        }
        if self.cgroup.is_none() {
            // Checked before memory, whose measurement waits for each process.
            if measured.pids > self.limits.pids() {
                return Some(Stop::watchdog(LimitName::Pids));
            }
            if measured.memory > self.limits.memory() {
                return self.check_memory();
            }
        }
        None
    }

    /// Confirms an excess of memory by a slower measurement, which leaves out pages of files and counts each shared
    /// page once. The guest may use the limit in addition to the zygote's memory, as under `RLIMIT_DATA`.
    fn check_memory(&mut self) -> Option<Stop> {
        // The process above shares the zygote's memory. Where `/proc` hides that process, the size of the zygote's
        // mappings is an upper bound.
        let inherited = procfs::private(self.proc, &format!("{}/status", self.above));
        let inherited = inherited.ok().or_else(|| self.mapped_by_zygote());
        let allowed = self.limits.memory();
        let allowed = allowed.saturating_add(inherited.unwrap_or(0));
        let mut memory = 0;
        for pid in self.tree() {
            let started = Instant::now();
            memory += own_share(self.proc, pid).unwrap_or(0);
            if memory > allowed {
                return Some(Stop::watchdog(LimitName::Memory));
            }
            if self.too_many_since(started) {
                return Some(Stop::watchdog(LimitName::Pids));
            }
        }
        None
    }

    /// Returns by how much the worker's `RLIMIT_DATA` exceeds the policy's limit, bytes.
    fn mapped_by_zygote(&self) -> Option<u64> {
        let limits = procfs::read(self.proc, &format!("{}/limits", self.main)).ok()?;
        data_limit(&limits)?.checked_sub(self.limits.memory())
    }

    /// Whether there are too many processes after a slow measurement.
    fn too_many_since(&mut self, started: Instant) -> bool {
        if started.elapsed() <= SLOW_READ {
            return false;
        }
        let pids = self.tree().len() as u64;
        self.peak.pids = self.peak.pids.max(pids);
        pids > self.limits.pids()
    }

    fn check_sockets(&mut self, now: Instant) -> Option<Stop> {
        let sockets = self.sockets.filter(|_| now >= self.next_sockets)?;
        self.next_sockets = now + self.pace.tick();
        let exceed = sockets.exceed(self.limits.memory());
        exceed.then(|| Stop::watchdog(LimitName::Memory))
    }

    fn check_files(&mut self) -> Option<Stop> {
        let (session, quota) = (self.session?, FileQuota::new(&self.limits));
        let started = Instant::now();
        let mut count = session.count(quota);
        for pid in self.tree() {
            let started_reading = Instant::now();
            count.add_nameless(pid);
            if self.too_many_since(started_reading) {
                return Some(Stop::watchdog(LimitName::Pids));
            }
            if started.elapsed() > MAX_FILES_CHECK {
                break;
            }
        }
        let pause = (started.elapsed() * FILES_SHARE)
            .clamp(FILES_TICK.max(self.pace.tick()), MAX_FILES_INTERVAL);
        self.next_files = clock::now() + pause;
        let size = count.size;
        if size.bytes > quota.size {
            return Some(Stop::watchdog(LimitName::WorkSize));
        }
        (size.inodes > quota.inodes).then(|| Stop::watchdog(LimitName::WorkInodes))
    }

    /// Returns the shortest time in which the limit can be reached, with every processor busy.
    fn interval(&self, used_us: u64) -> Duration {
        let used = Duration::from_micros(used_us) + self.charged;
        let left = self.limits.cpu().saturating_sub(used);
        self.shortest_time(left).max(MIN_INTERVAL)
    }

    /// Returns the shortest time in which the guest can use this much CPU time.
    fn shortest_time(&self, cpu: Duration) -> Duration {
        let millicores = u32::try_from(self.limits.millicores()).unwrap_or(u32::MAX);
        cpu * 1000 / millicores
    }

    fn measure(&self, tree: Vec<Pid>) -> Measured {
        let stat = |pid| procfs::stat(self.proc, pid).ok();
        let resident = |pid| procfs::resident(self.proc, &format!("{pid}/status")).unwrap_or(0);
        // At level `landlock`, the reaper waits for the worker's orphans. The init of a pid namespace ignores SIGCHLD,
        // as any process may, and then Linux adds the orphans' time to no parent.
        let orphans = stat(self.above).map_or(0, |stat| stat.waited_ticks);
        let without_processes = Measured {
            cpu_us: orphans * MICROSECONDS_PER_TICK,
            ..Measured::default()
        };
        tree.into_iter().fold(without_processes, |sum, pid| {
            let Some(stat) = stat(pid) else { return sum };
            let ticks = stat.own_ticks + stat.waited_ticks;
            Measured {
                cpu_us: sum.cpu_us + ticks * MICROSECONDS_PER_TICK,
                memory: sum.memory + resident(pid),
                pids: sum.pids + stat.threads,
            }
        })
    }

    /// Returns every process of the worker, except the process above it. Stops once there are too many.
    pub fn tree(&self) -> Vec<Pid> {
        let mut found = vec![self.main];
        let mut unseen = vec![self.main, self.above];
        while let Some(parent) = unseen
            .pop()
            .filter(|_| found.len() as u64 <= self.limits.pids())
        {
            for child in procfs::children(self.proc, parent) {
                if !found.contains(&child) {
                    found.push(child);
                    unseen.push(child);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charged_time_brings_the_next_check_forward() {
        let proc = std::fs::File::open("/proc").expect("/proc opens");
        let (own, now) = (Pid::this(), clock::now());
        let mut watch = Watch {
            cgroup: None,
            session: None,
            sockets: None,
            limits: Limits::new(|name| match name {
                LimitName::Cpu => 10_000,
                _ => 2000,
            }),
            proc: proc.as_fd(),
            main: own,
            above: own,
            next_processes: now,
            next_files: now,
            next_sockets: now,
            peak: Measured::default(),
            cpu_before: 0,
            charged: Duration::ZERO,
            pace: Pace::Running,
        };
        assert_eq!(watch.interval(0), Duration::from_secs(5));
        watch.charge(Duration::from_secs(4));
        assert_eq!(watch.interval(0), Duration::from_secs(3));
        assert_eq!(now - watch.next(), Duration::from_secs(2));
    }
}
