//! A supervisor and all that it starts, under ptrace(2): the system calls of one kind of process are counted,
//! and one of them can be made to fail, to wait, or to be where something is killed.
//!
//! From outside, so that what is tested is what is shipped. Only whose calls are asked for stops at them: a
//! sandbox is made in a tenth of the time that it takes where everybody does.

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

/// What became of a command.
#[derive(Debug)]
pub struct Answer {
    /// The supervisor's answer; `None` when it ended instead.
    pub line: Option<String>,
    /// The call that the fault was put into.
    pub fired: Option<Call>,
    /// The process that was killed at it, if there was one.
    pub struck: Option<Pid>,
    /// Every call of the traced processes since the command.
    pub calls: Vec<Call>,
    /// From the fault, or the command, to the answer.
    pub took: Duration,
}

/// What is done while a command is obeyed.
#[derive(Clone, Copy, Debug)]
pub enum Watch {
    /// Nothing: it takes as long as it does.
    None,
    /// The calls of this role are written down.
    Calls(Role),
    /// One call is where something happens.
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
    heard: Vec<u8>,
    events: SignalFd,
    shape: Shape,
    tasks: HashMap<Pid, Task>,
    /// Stopped at their birth, before their parent has told of it.
    unclaimed: HashSet<Pid>,
    /// Ended before their parent has told of their birth.
    stillborn: HashSet<Pid>,
    held: Vec<(Pid, Instant)>,
    watch: Watch,
    fired: Option<(Call, Instant)>,
    /// The process that was killed at it.
    struck: Option<Pid>,
    calls: Vec<Call>,
}

/// Longer than any answer takes, a host under load included.
const PATIENCE: Duration = Duration::from_secs(120);

impl Tracer {
    /// Starts a program and traces it. It must wait for a line on its standard input before it does
    /// anything.
    pub fn start(command: &mut Command, shape: Shape) -> Self {
        let events = traced::child_events();
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = piped.spawn().expect("it can be started");
        let stdin = child.stdin.take().expect("it is piped");
        let stdout = child.stdout.take().expect("it is piped");
        fcntl(&stdout, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).expect("a pipe can be nonblocking");
        let pid = pid(child.id());
        traced::seize(pid);
        Self {
            child,
            stdin,
            stdout,
            heard: Vec::new(),
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

    /// The supervisor's process number.
    pub fn pid(&self) -> Pid {
        pid(self.child.id())
    }

    /// Gives a command, with something on the way, and waits for the answer or the end.
    pub fn ask(&mut self, command: &str, watch: Watch) -> Answer {
        // It waits for the command, so that what comes before it is not counted.
        let waits = |tracer: &Self| tracer.listens() || !tracer.is_alive();
        self.until(PATIENCE, waits);
        self.follow(watch);
        let asked = Instant::now();
        // At once, so that it is read at once. One that has ended shows as having no answer.
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

    /// Stops the existing processes of a role at their calls, if they may be asked for some. The others
    /// are forked when the command is obeyed.
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
            // It waits, and comes back to the same call, at which it then stops.
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

    /// Waits for a state of the family; how long that took, if it came about.
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
        traced::next_line(&mut self.stdout, &mut self.heard)
    }

    /// Resumes all processes until `done` or `deadline`.
    fn pump(&mut self, deadline: Instant, mut done: impl FnMut(&mut Self) -> bool) {
        loop {
            self.heed();
            if done(self) || Instant::now() > deadline {
                return;
            }
            let mut fds = [
                PollFd::new(self.events.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.stdout.as_fd(), PollFlags::POLLIN),
            ];
            let fds = if self.heard.is_empty() && self.is_alive() {
                &mut fds[..]
            } else {
                &mut fds[..1]
            };
            _ = poll(fds, PollTimeout::from(1_u8));
            while matches!(self.events.read_signal(), Ok(Some(_))) {}
        }
    }

    /// Ends all of it. Another one's events are its own only when this is over.
    pub fn end(&mut self) {
        if self.is_alive() {
            _ = kill(self.pid(), Signal::SIGKILL);
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

fn pid(number: u32) -> Pid {
    Pid::from_raw(number.cast_signed())
}
