//! Traces a supervisor and everything that it starts with ptrace(2): the calls that set up a jail can be
//! inspected and changed.
//!
//! The changes are made from outside, so that the shipped code is tested. Processes are traced from their
//! creation, which no later change of credentials undoes, until guest code runs.

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::os::fd::AsFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::signalfd::SignalFd;
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;

use crate::family::{Call, Made, Role, Shape, role_of_child};
use crate::traced::{
    self, PTRACE_EVENT_STOP, before_call, born, leave_out, next_status, parent_is, set_return_value,
};

/// Callbacks for the system calls of the traced processes.
pub trait Changes {
    /// Called before a call is made.
    fn before(&mut self, pid: Pid, call: &Call, registers: &mut libc::user_regs_struct) -> Before;

    /// Called after a call was made.
    fn after(&mut self, pid: Pid, call: &Call) -> After;
}

/// How to continue a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Before {
    /// Make the call unchanged.
    Untouched,
    /// Make the call with the changed registers.
    Changed,
    /// Skip the call and return this value.
    LeftOut(i64),
}

/// How to continue a process after a call.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum After {
    /// Stop at its next call.
    Traced,
    /// Stop tracing the process and everything that it starts.
    LetGo,
}

/// A process or a thread.
#[derive(Debug)]
struct Task {
    role: Role,
    made: Made,
    /// The number of processes that it has forked.
    children: usize,
    /// The call in progress.
    within: Option<Call>,
    /// The forced return value of the call.
    returns: Option<i64>,
}

impl Task {
    fn new(role: Role) -> Self {
        Self {
            role,
            made: Made::default(),
            children: 0,
            within: None,
            returns: None,
        }
    }
}

pub struct Tracer {
    child: Child,
    /// The pipes for commands and results, if the program executes commands.
    streams: Option<(ChildStdin, ChildStdout)>,
    unread: Vec<u8>,
    /// The program's exit status, once it has ended.
    ended: Option<i32>,
    events: SignalFd,
    tasks: HashMap<Pid, Task>,
    /// Processes that stopped at their creation before their parent reported it.
    unclaimed: HashSet<Pid>,
    /// Callbacks for calls, if any.
    pub changes: Option<Box<dyn Changes>>,
}

/// Longer than any command takes, even on a busy host.
const PATIENCE: Duration = Duration::from_secs(120);

impl Tracer {
    /// Starts a program that reads one command per line and prints one result for each. It must wait for the
    /// first command before it does anything.
    pub fn start(command: &mut Command) -> Self {
        let mut tracer = Self::trace(command.stdin(Stdio::piped()).stdout(Stdio::piped()));
        tracer.streams = tracer.child.stdin.take().zip(tracer.child.stdout.take());
        let (_, stdout) = tracer.streams.as_ref().expect("the streams are piped");
        let nonblocking = FcntlArg::F_SETFL(OFlag::O_NONBLOCK);
        fcntl(stdout, nonblocking).expect("a pipe can be nonblocking");
        tracer
    }

    /// Runs a program to its end with these changes and returns its exit status. The program must stop itself
    /// before it does anything.
    pub fn follow(command: &mut Command, changes: Box<dyn Changes>) -> i32 {
        let mut tracer = Self::trace(command);
        tracer.changes = Some(changes);
        loop {
            // Repeated, because the program may not have stopped yet.
            if tracer.tasks.len() == 1 {
                _ = kill(tracer.pid(), Signal::SIGCONT);
            }
            tracer.pump(Duration::from_millis(100), |tracer| tracer.ended.is_some());
            if let Some(status) = tracer.ended {
                return status;
            }
        }
    }

    fn trace(command: &mut Command) -> Self {
        let events = traced::child_events();
        let child = command.spawn().expect("the process starts");
        let pid = pid(child.id());
        traced::seize(pid);
        Self {
            child,
            streams: None,
            unread: Vec::new(),
            ended: None,
            events,
            tasks: HashMap::from([(pid, Task::new(Role::Supervisor))]),
            unclaimed: HashSet::new(),
            changes: None,
        }
    }

    fn pid(&self) -> Pid {
        pid(self.child.id())
    }

    /// Sends a command and waits for its result; `None` if the program ends instead.
    pub fn ask(&mut self, command: &str) -> Option<String> {
        for task in self.tasks.values_mut() {
            task.made = Made::default();
        }
        let (stdin, _) = self.streams.as_mut().expect("the program reads commands");
        // A program that has ended is noticed by the missing result.
        _ = writeln!(stdin, "{command}");
        let mut line = None;
        self.pump(PATIENCE, |tracer| {
            line = tracer.line();
            line.is_some() || tracer.ended.is_some()
        });
        assert!(
            line.is_some() || self.ended.is_some(),
            "no answer to `{command}`"
        );
        line
    }

    fn line(&mut self) -> Option<String> {
        let (_, stdout) = self.streams.as_mut()?;
        traced::next_line(stdout, &mut self.unread)
    }

    /// Resumes all processes until `done` returns true, or the time is up.
    fn pump(&mut self, within: Duration, mut done: impl FnMut(&mut Self) -> bool) {
        let deadline = Instant::now() + within;
        loop {
            while let Some(status) = next_status() {
                self.handle(status);
            }
            if done(self) || Instant::now() > deadline {
                return;
            }
            let mut fds = vec![PollFd::new(self.events.as_fd(), PollFlags::POLLIN)];
            let answers = self.streams.as_ref().filter(|_| self.ended.is_none());
            fds.extend(answers.map(|(_, out)| PollFd::new(out.as_fd(), PollFlags::POLLIN)));
            _ = poll(&mut fds, PollTimeout::from(2_u8));
            while matches!(self.events.read_signal(), Ok(Some(_))) {}
        }
    }

    fn handle(&mut self, status: WaitStatus) {
        match status {
            WaitStatus::Exited(pid, status) => self.on_end(pid, status),
            WaitStatus::Signaled(pid, signal, _) => self.on_end(pid, 128 + signal as i32),
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
                resume(pid, self.role(pid), None);
            }
            WaitStatus::Stopped(pid, signal) => resume(pid, self.role(pid), Some(signal)),
            _ => {}
        }
    }

    fn role(&self, pid: Pid) -> Role {
        self.tasks.get(&pid).map_or(Role::Other, |task| task.role)
    }

    fn on_end(&mut self, pid: Pid, status: i32) {
        self.tasks.remove(&pid);
        self.unclaimed.remove(&pid);
        if pid == self.pid() {
            self.ended = Some(status);
        }
    }

    fn on_event(&mut self, parent: Pid, event: i32) {
        if event == libc::PTRACE_EVENT_EXEC {
            let supervisor = self.pid();
            if let Some(task) = self.tasks.get_mut(&parent)
                && task.role == Role::Other
                && task.children == 0
                && parent_is(parent, supervisor)
            {
                *task = Task::new(Role::Launcher);
            }
            return;
        }
        let Some(child) = born(parent) else {
            return;
        };
        let role = match self.tasks.get_mut(&parent) {
            // A new thread: threads of a supervisor serve sessions.
            Some(task) if event == libc::PTRACE_EVENT_CLONE => match task.role {
                Role::Supervisor => Role::Supervisor,
                _ => Role::Other,
            },
            Some(task) => {
                task.children += 1;
                let flags = task.within.map_or(0, |call| call.arguments[0]);
                role_of_child(Shape::MappedPidNamespaces, task.role, task.children, flags)
            }
            None => Role::Other,
        };
        self.tasks.insert(child, Task::new(role));
        if self.unclaimed.remove(&child) {
            resume(child, role, None);
        }
    }

    fn on_call(&mut self, pid: Pid) {
        let Some(task) = self.tasks.get_mut(&pid) else {
            return;
        };
        let Some(mut registers) = before_call(pid) else {
            return self.on_return(pid);
        };
        let call = task.made.enter(task.role, &registers);
        task.within = Some(call);
        let changes = self.changes.as_mut();
        match changes.map(|changes| changes.before(pid, &call, &mut registers)) {
            Some(Before::LeftOut(value)) => {
                task.returns = Some(value);
                leave_out(pid, registers);
            }
            Some(Before::Changed) => _ = ptrace::setregs(pid, registers),
            Some(Before::Untouched) | None => {}
        }
        resume(pid, call.role, None);
    }

    fn on_return(&mut self, pid: Pid) {
        let Some(task) = self.tasks.get_mut(&pid) else {
            return;
        };
        if let Some(value) = task.returns.take() {
            set_return_value(pid, value);
        }
        let role = task.role;
        let made = task.within.take().zip(self.changes.as_mut());
        match made.map(|(call, changes)| changes.after(pid, &call)) {
            Some(After::LetGo) => {
                self.tasks.remove(&pid);
                _ = ptrace::detach(pid, None);
            }
            Some(After::Traced) | None => resume(pid, role, None),
        }
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        // Everything that it started ends with it, or with this process (PTRACE_O_EXITKILL).
        _ = kill(self.pid(), Signal::SIGKILL);
        self.pump(Duration::from_secs(20), |tracer| {
            tracer.tasks.is_empty() && tracer.unclaimed.is_empty()
        });
    }
}

/// Resumes a process. A process that was killed meanwhile is ignored.
fn resume(pid: Pid, role: Role, signal: Option<Signal>) {
    _ = match role {
        Role::Other => ptrace::cont(pid, signal),
        _ => ptrace::syscall(pid, signal),
    };
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed())
}
