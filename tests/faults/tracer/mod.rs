//! Traces a supervisor and everything that it starts with ptrace(2). The system calls of one role are counted,
//! and one call can be made to fail, be delayed, or trigger a kill.
//!
//! Faults are injected from outside, so that the shipped code is tested. Only processes of the watched role stop at
//! their calls: building a sandbox takes a tenth of the time that it would take if all processes stopped.

mod queries;
mod stops;

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
use nix::unistd::Pid;

use crate::family::{Call, Made, Role, Shape};
use crate::fault::Fault;
use crate::task::Task;
use crate::traced;

/// The result of a command.
#[derive(Debug)]
pub struct Answer {
    /// The supervisor's reply; `None` if it ended instead.
    pub line: Option<String>,
    /// The call into which the fault was injected.
    pub fired: Option<Call>,
    /// The process that was killed at that call, if any.
    pub struck: Option<Pid>,
    /// Every call of the watched processes since the command.
    pub calls: Vec<Call>,
    /// The time from the fault, or else the command, to the reply.
    pub took: Duration,
}

/// What the tracer does during a command.
#[derive(Clone, Copy, Debug)]
pub enum Watch {
    /// Nothing.
    None,
    /// Records the calls of this role.
    Calls(Role),
    /// Injects a fault into one call.
    Until(Fault),
}

impl Watch {
    fn role(self) -> Option<Role> {
        match self {
            Self::None => None,
            Self::Calls(role) => Some(role),
            Self::Until(fault) => Some(fault.role()),
        }
    }
}

pub struct Tracer {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    unread: Vec<u8>,
    events: SignalFd,
    shape: Shape,
    tasks: HashMap<Pid, Task>,
    /// Processes that stopped at their creation before their parent reported it.
    unclaimed: HashSet<Pid>,
    /// Processes that ended before their parent reported their creation.
    stillborn: HashSet<Pid>,
    held: Vec<(Pid, Instant)>,
    watch: Watch,
    fired: Option<(Call, Instant)>,
    /// The process that was killed by the fault.
    struck: Option<Pid>,
    calls: Vec<Call>,
}

/// Longer than any command takes, even on a busy host.
const PATIENCE: Duration = Duration::from_secs(120);

impl Tracer {
    /// Starts a program and traces it. The program must wait for a line on its stdin before it does
    /// anything.
    pub fn start(command: &mut Command, shape: Shape) -> Self {
        let events = traced::child_events();
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("the process starts");
        let stdin = child.stdin.take().expect("the stream is piped");
        let stdout = child.stdout.take().expect("the stream is piped");
        fcntl(&stdout, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe can be nonblocking");
        let pid = pid(child.id());
        traced::seize(pid);
        Self {
            child,
            stdin,
            stdout,
            unread: Vec::new(),
            events,
            shape,
            tasks: HashMap::from([(pid, Task::new(Role::Supervisor))]),
            unclaimed: HashSet::new(),
            stillborn: HashSet::new(),
            held: Vec::new(),
            watch: Watch::None,
            fired: None,
            struck: None,
            calls: Vec::new(),
        }
    }

    /// Returns the supervisor's process id.
    pub fn pid(&self) -> Pid {
        pid(self.child.id())
    }

    /// Sends a command and waits for its reply or the supervisor's end.
    pub fn ask(&mut self, command: &str, watch: Watch) -> Answer {
        // Wait until the supervisor reads the command, so that earlier calls are not counted.
        let waits = |tracer: &Self| tracer.listens() || !tracer.is_alive();
        self.until(PATIENCE, waits);
        self.follow(watch);
        let asked = Instant::now();
        // In one write, so that it is read at once. A supervisor that has ended is noticed by the missing reply.
        _ = self.stdin.write_all(format!("{command}\n").as_bytes());
        let mut line = None;
        self.pump(asked + PATIENCE, |tracer| {
            line = tracer.line();
            line.is_some() || !tracer.is_alive()
        });
        assert!(
            line.is_some() || !self.is_alive(),
            "no answer to `{command}` with {watch:?}: {:?}",
            self.family()
        );
        self.watch = Watch::None;
        let since = self.fired.map_or(asked, |(_, when)| when);
        Answer {
            line,
            fired: self.fired.map(|(call, _)| call),
            struck: self.struck,
            calls: std::mem::take(&mut self.calls),
            took: since.elapsed(),
        }
    }

    /// Makes the existing processes of a watched role stop at their calls, if commands may involve them. The others
    /// are forked during the command.
    fn follow(&mut self, watch: Watch) {
        self.watch = Watch::None;
        let followed: Vec<Pid> = [Role::Supervisor, Role::Zygote]
            .into_iter()
            .filter(|role| watch.role() == Some(*role))
            .filter_map(|role| self.find(role))
            .collect();
        for pid in &followed {
            if let Some(task) = self.tasks.get_mut(pid) {
                task.is_followed = true;
                task.is_within = false;
            }
            // The process waits in a call, and restarts it after the interrupt; then it stops there.
            _ = ptrace::interrupt(*pid);
        }
        let are_within = |tracer: &Self| {
            let within = |pid| tracer.tasks.get(pid).is_none_or(|task| task.is_within);
            followed.iter().all(within)
        };
        self.until(PATIENCE, are_within);
        for (pid, task) in &mut self.tasks {
            task.is_followed = followed.contains(pid);
            task.is_old = true;
            task.made = Made::default();
        }
        self.watch = watch;
        self.fired = None;
        self.struck = None;
        self.calls.clear();
    }

    /// Waits for a state of the family. Returns how long that took, if it was reached.
    pub fn until(
        &mut self,
        patience: Duration,
        mut state: impl FnMut(&Self) -> bool,
    ) -> Option<Duration> {
        let start = Instant::now();
        let mut reached = state(self);
        if !reached {
            self.pump(start + patience, |tracer| {
                reached = state(tracer);
                reached
            });
        }
        reached.then(|| start.elapsed())
    }

    fn line(&mut self) -> Option<String> {
        traced::next_line(&mut self.stdout, &mut self.unread)
    }

    /// Resumes all processes until `done` returns true, or until the deadline.
    fn pump(&mut self, deadline: Instant, mut done: impl FnMut(&mut Self) -> bool) {
        loop {
            self.process_events();
            if done(self) || Instant::now() > deadline {
                return;
            }
            let mut fds = [
                PollFd::new(self.events.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN),
            ];
            let fds = if self.unread.is_empty() && self.is_alive() {
                &mut fds[..]
            } else {
                &mut fds[..1]
            };
            _ = poll(fds, PollTimeout::from(1_u8));
            while matches!(self.events.read_signal(), Ok(Some(_))) {}
        }
    }

    /// Ends all traced processes. Another tracer's events can be told apart only when this is over.
    pub fn end(&mut self) {
        if self.is_alive() {
            _ = kill(self.pid(), Signal::SIGKILL);
        }
        // Processes that remain end with this process (PTRACE_O_EXITKILL).
        self.until(Duration::from_secs(10), Self::is_over);
    }
}

impl Drop for Tracer {
    fn drop(&mut self) {
        self.end();
    }
}

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed())
}
