//! Counts the system calls of a process and of everything that it forks.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::path::Path;

use nix::errno::Errno;
use nix::sys::ptrace::Event;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::Mark;
use crate::traced::{before_call, born, call, call_names, seize, to_next_call};

const FCNTL: u64 = libc::SYS_fcntl.cast_unsigned();
const F_GETFD: u64 = 1;
const EXIT_GROUP: u64 = libc::SYS_exit_group.cast_unsigned();
const CLOCK_GETTIME: u64 = libc::SYS_clock_gettime.cast_unsigned();

/// System calls by calling process, and page faults.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Counts {
    /// Calls of all threads of the traced process.
    pub supervisor: usize,
    /// Calls of processes that existed when the span began.
    pub zygote: usize,
    /// Calls of processes that were forked during the span.
    pub worker: usize,
    /// Page faults of a worker until its end.
    pub faults: usize,
}

impl Counts {
    /// Returns the minimum of each count.
    pub fn least(self, other: Self) -> Self {
        Self {
            supervisor: self.supervisor.min(other.supervisor),
            zygote: self.zygote.min(other.zygote),
            worker: self.worker.min(other.worker),
            faults: self.faults.min(other.faults),
        }
    }

    pub const fn plus(self, other: Self) -> Self {
        Self {
            supervisor: self.supervisor + other.supervisor,
            zygote: self.zygote + other.zygote,
            worker: self.worker + other.worker,
            faults: self.faults + other.faults,
        }
    }

    pub fn is_within(&self, least: &Self, most: &Self) -> bool {
        let each = |counts: &Self| {
            [
                counts.supervisor,
                counts.zygote,
                counts.worker,
                counts.faults,
            ]
        };
        let [counted, least, most] = [self, least, most].map(each);
        (0..4).all(|who| (least[who]..=most[who]).contains(&counted[who]))
    }
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Role {
    Supervisor,
    Zygote,
    Worker,
}

/// Counts from one begin mark to the next.
#[derive(Debug, Default)]
pub struct Span {
    pub counts: Counts,
    /// By role and system call number.
    calls: BTreeMap<(Role, u64), usize>,
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = call_names();
        for ((role, number), times) in &self.calls {
            let name = names.get(number).unwrap_or(&"unknown");
            writeln!(f, "{role:?}: {name}, {times} times")?;
        }
        Ok(())
    }
}

/// Traces a process. It must be the only code that waits for children in this process.
pub struct Tracer {
    root: Pid,
    /// Processes and threads that existed when the current span began.
    old: HashSet<Pid>,
    /// All live processes and threads; the value says whether it is a thread of the root.
    known: HashMap<Pid, bool>,
    spans: Vec<Span>,
    /// Whether the traced process is between a begin and an end mark.
    inside: bool,
}

impl Tracer {
    /// Attaches to a single-threaded process.
    pub fn seize(root: Pid) -> Self {
        seize(root);
        Self {
            root,
            old: HashSet::new(),
            known: HashMap::from([(root, true)]),
            spans: Vec::new(),
            inside: false,
        }
    }

    /// Traces until the process and all its descendants have ended. Returns the spans.
    pub fn follow(&mut self) -> Vec<Span> {
        let mut ended = None;
        loop {
            match waitpid(None, Some(WaitPidFlag::__WALL)) {
                Ok(WaitStatus::PtraceSyscall(pid)) => {
                    self.count(pid);
                    to_next_call(pid, None);
                }
                Ok(WaitStatus::PtraceEvent(pid, _, event)) => {
                    self.on_event(pid, event);
                    to_next_call(pid, None);
                }
                Ok(WaitStatus::Stopped(pid, signal)) => to_next_call(pid, Some(signal)),
                Ok(end @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..))) => {
                    self.known.remove(&pid);
                    if pid == self.root {
                        ended = Some(end);
                    }
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(Errno::ECHILD) => break,
                Err(errno) => panic!("waitpid: {errno}"),
            }
        }
        assert_eq!(ended, Some(WaitStatus::Exited(self.root, 0)));
        std::mem::take(&mut self.spans)
    }

    /// Records a new process or thread before its first system call: both it and its parent stop at its creation.
    fn on_event(&mut self, pid: Pid, event: i32) {
        let births = [
            Event::PTRACE_EVENT_FORK,
            Event::PTRACE_EVENT_VFORK,
            Event::PTRACE_EVENT_CLONE,
        ];
        let new_task = if births.iter().any(|birth| *birth as i32 == event) {
            born(pid)
        } else {
            Some(pid)
        };
        if let Some(pid) = new_task {
            self.add_task(pid);
        }
    }

    fn add_task(&mut self, pid: Pid) {
        let root = self.root;
        let is_thread = || Path::new(&format!("/proc/{root}/task/{pid}")).exists();
        self.known.entry(pid).or_insert_with(is_thread);
    }

    fn count(&mut self, pid: Pid) {
        let Some(registers) = before_call(pid) else {
            return;
        };
        let (call, [first, second]) = call(&registers);
        // The standard library checks descriptors before it closes them if debug assertions are enabled.
        if call == FCNTL && second == F_GETFD {
            return;
        }
        // Without vDSO support, reading the clock is a system call (vdso(7)).
        if call == CLOCK_GETTIME {
            return;
        }
        let role = match self.known.get(&pid) {
            Some(true) => Role::Supervisor,
            _ if self.old.contains(&pid) => Role::Zygote,
            _ => Role::Worker,
        };
        if role == Role::Supervisor && self.on_mark(first) {
            return;
        }
        let Some(span) = self.spans.last_mut() else {
            return;
        };
        if role == Role::Worker && call == EXIT_GROUP {
            span.counts.faults = span.counts.faults.max(faults(pid));
        }
        let who = match role {
            // Calls between two spans belong to neither.
            Role::Supervisor if !self.inside => return,
            Role::Supervisor => &mut span.counts.supervisor,
            Role::Zygote => &mut span.counts.zygote,
            Role::Worker => &mut span.counts.worker,
        };
        *who += 1;
        *span.calls.entry((role, call)).or_default() += 1;
    }

    fn on_mark(&mut self, argument: u64) -> bool {
        if argument == Mark::Begin as u64 {
            self.old = self.known.keys().copied().collect();
            self.spans.push(Span::default());
            self.inside = true;
        } else if argument == Mark::End as u64 {
            self.inside = false;
        } else {
            return false;
        }
        true
    }
}

/// Returns the minor page faults of a process (proc_pid_stat(5), `minflt`).
fn faults(pid: Pid) -> usize {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The program name, in parentheses, may contain spaces.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let minflt = fields.split_ascii_whitespace().nth(7);
    minflt.and_then(|count| count.parse().ok()).unwrap_or(0)
}
