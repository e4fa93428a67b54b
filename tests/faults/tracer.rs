//! A supervisor and all that it starts, under ptrace(2): every system call is counted, and one of
//! them can be made to fail, to wait, or to be where something is killed.
//!
//! From outside, so that what is tested is what is shipped. Processes are traced from their birth,
//! which no later change of their rights undoes.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use crate::call::{Act, Call, Fault, Role, harmless};
use crate::task::{Task, role_of_child};

/// What became of a command.
#[derive(Debug)]
pub struct Answer {
    /// The supervisor's answer; `None` when it ended instead.
    pub line: Option<String>,
    /// The call that the fault was put into.
    pub fired: Option<Call>,
    /// Every call since the command, but those of [`Role::Other`].
    pub calls: Vec<Call>,
    /// From the fault, or the command, to the answer.
    pub took: Duration,
}

pub struct Tracer {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    heard: Vec<u8>,
    events: SignalFd,
    tasks: HashMap<Pid, Task>,
    /// Stopped at their birth, before their parent has told of it.
    unclaimed: HashSet<Pid>,
    held: Vec<(Pid, Instant)>,
    fault: Option<Fault>,
    fired: Option<(Call, Instant)>,
    calls: Vec<Call>,
}

/// The stop of a new process that is traced from its birth (ptrace(2)).
const PTRACE_EVENT_STOP: i32 = 128;

/// Longer than any answer takes, a host under load included.
const PATIENCE: Duration = Duration::from_secs(40);

impl Tracer {
    /// Starts a program and traces it. It must wait for a line on its standard input before it does
    /// anything.
    pub fn start(command: &mut Command) -> Self {
        let mut sigchld = SigSet::empty();
        sigchld.add(Signal::SIGCHLD);
        // Told by a descriptor, beside the program's answers. The program starts with none blocked.
        sigchld.thread_block().expect("a signal can be blocked");
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let events = SignalFd::with_flags(&sigchld, flags).expect("a descriptor is left");
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("it can be started");
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        fcntl(&stdout, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe can be nonblocking");
        let pid = pid(child.id());
        let options = Options::PTRACE_O_TRACESYSGOOD
            | Options::PTRACE_O_TRACEFORK
            | Options::PTRACE_O_TRACEVFORK
            | Options::PTRACE_O_TRACECLONE
            | Options::PTRACE_O_TRACEEXEC
            | Options::PTRACE_O_EXITKILL;
        ptrace::seize(pid, options).expect("a child can be traced");
        ptrace::interrupt(pid).expect("it is traced");
        let mut tracer = Self {
            child,
            stdin,
            stdout,
            heard: Vec::new(),
            events,
            tasks: HashMap::new(),
            unclaimed: HashSet::new(),
            held: Vec::new(),
            fault: None,
            fired: None,
            calls: Vec::new(),
        };
        tracer.tasks.insert(pid, Task::new(Role::Supervisor));
        tracer
    }

    /// The supervisor's process number.
    pub fn pid(&self) -> Pid {
        pid(self.child.id())
    }

    /// Gives a command, with a fault on the way, and waits for the answer or the end.
    pub fn ask(&mut self, command: &str, fault: Option<Fault>) -> Answer {
        // It waits for the command, so that what comes before it is not counted.
        let waits = |tracer: &Self| tracer.waits_in(Role::Supervisor, "read") || !tracer.is_alive();
        self.until(PATIENCE, waits);
        self.fault = fault;
        self.fired = None;
        self.calls.clear();
        for task in self.tasks.values_mut() {
            task.calls = 0;
            task.occurrences.clear();
        }
        let asked = Instant::now();
        // One that has ended shows as having no answer.
        _ = writeln!(self.stdin, "{command}");
        let mut line = None;
        self.pump(asked + PATIENCE, |tracer| {
            line = tracer.line();
            line.is_some() || !tracer.is_alive()
        });
        assert!(
            line.is_some() || !self.is_alive(),
            "no answer to `{command}` with {fault:?}: {:?}",
            self.family()
        );
        self.fault = None;
        let since = self.fired.map_or(asked, |(_, when)| when);
        Answer {
            line,
            fired: self.fired.map(|(call, _)| call),
            calls: std::mem::take(&mut self.calls),
            took: since.elapsed(),
        }
    }

    /// Lets time pass until something holds; how long that took, or `None` if it does not.
    pub fn until(
        &mut self,
        within: Duration,
        mut holds: impl FnMut(&Self) -> bool,
    ) -> Option<Duration> {
        let start = Instant::now();
        let mut held = false;
        self.pump(start + within, |tracer| {
            held = holds(tracer);
            held
        });
        held.then(|| start.elapsed())
    }

    /// Who is there, how often: the threads of [`Role::Other`] are not told.
    pub fn family(&self) -> Vec<Role> {
        let mut family: Vec<Role> = self.tasks.values().map(|task| task.role).collect();
        family.sort_unstable();
        family
    }

    /// Whether the youngest process of a role waits in this call.
    pub fn waits_in(&self, role: Role, name: &str) -> bool {
        let task = self.find(role).and_then(|pid| self.tasks.get(&pid));
        let within = task.and_then(|task| task.within);
        within.is_some_and(|call| call.is(&[name]))
    }

    /// Whether the supervisor is there.
    pub fn is_alive(&self) -> bool {
        self.tasks.contains_key(&self.pid())
    }

    /// Whether nobody is there.
    pub fn is_over(&self) -> bool {
        self.tasks.is_empty() && self.unclaimed.is_empty()
    }

    /// The youngest process of a role.
    pub fn find(&self, role: Role) -> Option<Pid> {
        let of_role = self.tasks.iter().filter(|(_, task)| task.role == role);
        of_role.map(|(pid, _)| *pid).max()
    }

    /// How many descriptors a process has open, but those of cgroups, which are kept for workers to come.
    pub fn descriptors(&self, role: Role) -> usize {
        let pid = self.find(role).expect("it is there");
        let open = fs::read_dir(format!("/proc/{pid}/fd"))
            .into_iter()
            .flatten();
        let targets = open
            .flatten()
            .filter_map(|fd| fs::read_link(fd.path()).ok());
        targets
            .filter(|target| !target.starts_with("/sys/fs/cgroup"))
            .count()
    }

    fn line(&mut self) -> Option<String> {
        let mut chunk = [0; 4096];
        while let Ok(length @ 1..) = self.stdout.read(&mut chunk) {
            self.heard.extend_from_slice(&chunk[..length]);
        }
        let end = self.heard.iter().position(|byte| *byte == b'\n')?;
        let line: Vec<u8> = self.heard.drain(..=end).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Lets everyone go on until `done` or `deadline`.
    fn pump(&mut self, deadline: Instant, mut done: impl FnMut(&mut Self) -> bool) {
        loop {
            self.release_held();
            while let Some(status) = next_status() {
                self.handle(status);
            }
            if done(self) || Instant::now() > deadline {
                return;
            }
            let mut fds = [
                PollFd::new(self.events.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN),
            ];
            // Standard signals do not queue; what one of them stood for is asked for anyway.
            let fds = if self.heard.is_empty() && self.is_alive() {
                &mut fds[..]
            } else {
                &mut fds[..1]
            };
            _ = poll(fds, PollTimeout::from(2_u8));
            while matches!(self.events.read_signal(), Ok(Some(_))) {}
        }
    }

    fn release_held(&mut self) {
        let now = Instant::now();
        let (due, later) = self.held.drain(..).partition(|(_, until)| *until <= now);
        self.held = later;
        let due: Vec<(Pid, Instant)> = due;
        for (pid, _) in due {
            resume(pid, Role::Worker, None);
        }
    }

    fn handle(&mut self, status: WaitStatus) {
        match status {
            WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..) => {
                self.tasks.remove(&pid);
                self.unclaimed.remove(&pid);
            }
            WaitStatus::PtraceSyscall(pid) => self.on_call(pid),
            WaitStatus::PtraceEvent(pid, _, PTRACE_EVENT_STOP) => {
                let Some(task) = self.tasks.get(&pid) else {
                    self.unclaimed.insert(pid);
                    return;
                };
                resume(pid, task.role, None);
            }
            WaitStatus::PtraceEvent(pid, _, event) => {
                self.on_event(pid, event);
                let role = self.tasks.get(&pid).map_or(Role::Other, |task| task.role);
                resume(pid, role, None);
            }
            WaitStatus::Stopped(pid, signal) => {
                let role = self.tasks.get(&pid).map_or(Role::Other, |task| task.role);
                resume(pid, role, Some(signal));
            }
            _ => {}
        }
    }

    fn on_event(&mut self, parent: Pid, event: i32) {
        if event == libc::PTRACE_EVENT_EXEC {
            if let Some(task) = self.tasks.get_mut(&parent)
                && task.role == Role::Other
                && task.children == 0
                && parent_is(parent, pid(self.child.id()))
            {
                *task = Task::new(Role::Launcher);
            }
            return;
        }
        let Ok(child) = ptrace::getevent(parent) else {
            return;
        };
        let child = Pid::from_raw(i32::try_from(child).expect("it is a process number"));
        let role = match self.tasks.get_mut(&parent) {
            Some(task) => {
                let is_thread = event == libc::PTRACE_EVENT_CLONE;
                if is_thread {
                    Role::Other
                } else {
                    task.children += 1;
                    let flags = task.within.map_or(0, |call| call.arguments[0]);
                    role_of_child(task.role, task.children, flags)
                }
            }
            None => Role::Other,
        };
        self.tasks.insert(child, Task::new(role));
        if self.unclaimed.remove(&child) {
            resume(child, role, None);
        }
    }

    fn on_call(&mut self, pid: Pid) {
        let (Some(task), Ok(registers)) = (self.tasks.get_mut(&pid), ptrace::getregs(pid)) else {
            return;
        };
        let role = task.role;
        if !is_entry(pid) {
            task.within = None;
            if let Some(value) = task.returns.take() {
                let mut registers = registers;
                registers.rax = value.cast_unsigned();
                _ = ptrace::setregs(pid, registers);
            }
            return resume(pid, role, None);
        }
        task.calls += 1;
        let occurrence = task.occurrences.entry(registers.orig_rax).or_default();
        *occurrence += 1;
        let call = Call {
            role,
            nth: task.calls,
            occurrence: *occurrence,
            number: registers.orig_rax,
            arguments: [
                registers.rdi,
                registers.rsi,
                registers.rdx,
                registers.r10,
                registers.r8,
                registers.r9,
            ],
        };
        task.within = Some(call);
        self.calls.push(call);
        match self.fault.and_then(|fault| fault.for_call(&call)) {
            Some(act) => {
                self.fault = None;
                self.put_in(pid, call, act, registers);
            }
            None => resume(pid, role, None),
        }
    }

    fn put_in(&mut self, pid: Pid, call: Call, act: Act, mut registers: libc::user_regs_struct) {
        self.fired = Some((call, Instant::now()));
        let error = |errno: Errno| Some(-i64::from(errno as i32));
        let (returns, is_made) = match act {
            Act::Fail(errno) => (error(errno), false),
            Act::Deny(errno) => (error(errno), true),
            Act::Pretend(value) => (Some(value), false),
            Act::Delay(time) => {
                self.held.push((pid, Instant::now() + time));
                return;
            }
            Act::Kill(victim) => {
                let victim = self.find(victim);
                _ = victim.map(|victim| kill(victim, Signal::SIGKILL));
                return resume(pid, call.role, None);
            }
        };
        if let Some(task) = self.tasks.get_mut(&pid) {
            task.returns = returns;
        }
        if !is_made {
            registers.orig_rax = harmless();
            _ = ptrace::setregs(pid, registers);
        }
        resume(pid, call.role, None);
    }
}

impl Tracer {
    /// Ends all of it. Another one's events are its own only when this is over.
    pub fn end(&mut self) {
        let supervisor = self.pid();
        if self.is_alive() {
            _ = kill(supervisor, Signal::SIGKILL);
        }
        // What is left of the others ends with this process: PTRACE_O_EXITKILL.
        self.until(Duration::from_secs(10), Self::is_over);
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.end();
    }
}

fn next_status() -> Option<WaitStatus> {
    let flags = WaitPidFlag::WNOHANG | WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD;
    match waitpid(None, Some(flags)) {
        Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => None,
        Ok(status) => Some(status),
        Err(errno) => panic!("waiting for a traced process: {errno}"),
    }
}

/// One that was killed meanwhile needs no leave.
fn resume(pid: Pid, role: Role, signal: Option<Signal>) {
    _ = match role {
        Role::Other => ptrace::cont(pid, signal),
        _ => ptrace::syscall(pid, signal),
    };
}

fn is_entry(pid: Pid) -> bool {
    ptrace::syscall_info(pid).is_ok_and(|info| info.op == libc::PTRACE_SYSCALL_INFO_ENTRY)
}

fn parent_is(pid: Pid, parent: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix("PPid:"));
    found.is_some_and(|found| found.trim() == parent.to_string())
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed())
}
