//! A thread that stops guests with ptrace(2). It must be one thread, because a tracer is a thread, not a process.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, gettid};
use sandfork_jail::sys::hold::{self, Event};
use sandfork_jail::sys::procfs;

use super::Guest;

/// The longest time to stop all tasks. A guest whose processes end as fast as they start others could keep the thread
/// busy forever.
const MAX_HOLD_TIME: Duration = Duration::from_secs(1);

/// The longest wait for a task that is inside the kernel, where it runs no guest code: the parent of a vfork(2) leaves
/// the kernel only after its child.
const MAX_KERNEL_TIME: Duration = Duration::from_millis(50);

/// The pause between two passes over the tasks.
const PAUSE: Duration = Duration::from_millis(1);

/// A handle on the thread that holds guests. Held guests die with the thread.
pub struct Holder {
    commands: Sender<Command>,
    answers: Receiver<Result<(), String>>,
}

enum Command {
    Hold(Vec<Guest>),
    Release,
}

impl Holder {
    /// Starts the thread.
    pub fn start() -> Result<Self, String> {
        let (commands, received) = channel();
        let (answer, answers) = channel();
        let hold = move || {
            let mut tasks = Tasks::default();
            while let Some(command) = tasks.next(&received) {
                let done = match command {
                    Command::Hold(guests) => tasks.hold(&guests),
                    Command::Release => {
                        tasks.release();
                        Ok(())
                    }
                };
                if answer.send(done).is_err() {
                    break;
                }
            }
        };
        let thread = thread::Builder::new().name("holder".into()).spawn(hold);
        thread.map_err(|_| no_thread())?;
        Ok(Self { commands, answers })
    }

    /// Stops every task of these guests, or none.
    pub fn hold(&self, guests: Vec<Guest>) -> Result<(), String> {
        self.send(Command::Hold(guests))
    }

    /// Resumes all tasks.
    pub fn release(&self) {
        // Fails if the thread is gone; the guests died with it.
        _ = self.send(Command::Release);
    }

    fn send(&self, command: Command) -> Result<(), String> {
        _ = self.commands.send(command);
        self.answers.recv().unwrap_or_else(|_| Err(no_thread()))
    }
}

/// Returns the error of a thread that could not be started or has ended.
fn no_thread() -> String {
    "no thread could be started to hold it".to_owned()
}

/// Returns the error of a failed ptrace(2) call.
fn refused(errno: Errno) -> String {
    format!("the kernel refuses to hold it (ptrace: {errno})")
}

/// The tasks that the thread holds.
#[derive(Default)]
struct Tasks {
    /// The traced tasks, with the signal that each was about to receive; `None` while a task is still inside the
    /// kernel.
    held: BTreeMap<Pid, Option<libc::c_int>>,
    /// Whether tasks that leave the kernel are to be resumed.
    is_released: bool,
}

impl Tasks {
    /// Waits for a command. Meanwhile resumes released tasks that were still inside the kernel.
    fn next(&mut self, commands: &Receiver<Command>) -> Option<Command> {
        loop {
            if self.held.is_empty() || !self.is_released {
                return commands.recv().ok();
            }
            match commands.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Timeout) => self.release(),
                received => return received.ok(),
            }
        }
    }

    fn hold(&mut self, guests: &[Guest]) -> Result<(), String> {
        self.is_released = false;
        let held = self.hold_all(guests);
        if held.is_err() {
            self.release();
        }
        held
    }

    /// Stops tasks until all are stopped and a pass finds no new task: a task may start others until it is stopped.
    fn hold_all(&mut self, guests: &[Guest]) -> Result<(), String> {
        let proc = open_proc().map_err(refused)?;
        let started = Instant::now();
        let mut ended = BTreeSet::new();
        let mut settled_since = None;
        loop {
            self.process_events();
            let before: BTreeSet<Pid> = self.held.keys().copied().collect();
            let found = tasks_of(&proc, guests);
            // A pid may have been reused between the listing and the seize. Release such tasks.
            self.held
                .retain(|task, signal| found.contains(task) || !resume(*task, *signal));
            let ended_before = std::mem::take(&mut ended);
            let mut is_settled = true;
            for task in &found {
                match self.seize(*task)? {
                    TaskState::Runs => {}
                    TaskState::Zombie => _ = ended.insert(*task),
                    TaskState::Gone => is_settled = false,
                }
            }
            self.process_events();
            // A task that ends during a pass moves its children to a parent that the pass may have visited before. So
            // only a pass during which no task ended proves that there is no other task.
            is_settled &= ended == ended_before && self.held.keys().eq(&before);
            if is_settled {
                let since: &mut Instant = settled_since.get_or_insert_with(Instant::now);
                if self.held.values().all(Option::is_some) || since.elapsed() > MAX_KERNEL_TIME {
                    return Ok(());
                }
            } else {
                settled_since = None;
            }
            if started.elapsed() > MAX_HOLD_TIME {
                return Err("it starts processes faster than they can be held".to_owned());
            }
            thread::sleep(PAUSE);
        }
    }

    /// Attaches to a task and interrupts it, unless it is attached or has ended.
    fn seize(&mut self, task: Pid) -> Result<TaskState, String> {
        if self.held.contains_key(&task) {
            return Ok(TaskState::Runs);
        }
        match hold::seize(task).and_then(|()| hold::interrupt(task)) {
            Ok(()) => {
                self.held.insert(task, None);
                Ok(TaskState::Runs)
            }
            Err(errno) => match state_of(task) {
                // A held task has started this one, which is attached automatically: its first event is still to come.
                TaskState::Runs if tracer(task) == Some(gettid()) => Ok(TaskState::Runs),
                TaskState::Runs => Err(refused(errno)),
                ended => Ok(ended),
            },
        }
    }

    /// Processes pending ptrace events: records stopped tasks, and forgets tasks that have ended.
    fn process_events(&mut self) {
        while let Some((task, event)) = hold::event() {
            match event {
                Event::Stopped(signal) => _ = self.held.insert(task, Some(signal)),
                Event::Ended => _ = self.held.remove(&task),
            }
        }
    }

    /// Resumes all tasks that are stopped.
    fn release(&mut self) {
        self.is_released = true;
        self.process_events();
        self.held.retain(|task, signal| !resume(*task, *signal));
    }
}

/// Resumes a task if it is stopped. Returns whether it is no longer held. A thread that calls execve(2) takes over the
/// pid of its process, and its own pid ends without an event.
fn resume(task: Pid, signal: Option<libc::c_int>) -> bool {
    signal.is_some_and(|signal| hold::release(task, signal).is_ok())
        || tracer(task) != Some(gettid())
}

/// Returns every task of these guests.
fn tasks_of(proc: &OwnedFd, guests: &[Guest]) -> BTreeSet<Pid> {
    let mut processes = BTreeSet::new();
    for guest in guests {
        let (main, above) = guest.roots();
        let mut unseen: Vec<Pid> = main.into_iter().chain(above).collect();
        processes.extend(main);
        while let Some(parent) = unseen.pop() {
            let children = procfs::children(proc.as_fd(), parent);
            unseen.extend(
                children
                    .into_iter()
                    .filter(|child| processes.insert(*child)),
            );
        }
    }
    processes.into_iter().flat_map(threads).collect()
}

fn threads(process: Pid) -> Vec<Pid> {
    let entries = fs::read_dir(format!("/proc/{process}/task"));
    let names = entries.into_iter().flatten().filter_map(Result::ok);
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    names.filter_map(number).map(Pid::from_raw).collect()
}

/// The state of a task.
enum TaskState {
    Runs,
    /// The task has ended, or is about to, and has not been reaped.
    Zombie,
    Gone,
}

fn state_of(task: Pid) -> TaskState {
    let stat = fs::read_to_string(format!("/proc/{task}/stat"));
    match stat.ok().and_then(|text| procfs::Stat::parse(&text)) {
        None => TaskState::Gone,
        Some(stat) if stat.is_exiting() || matches!(stat.state, 'Z' | 'X') => TaskState::Zombie,
        Some(_) => TaskState::Runs,
    }
}

/// Returns the tracer of a task.
fn tracer(task: Pid) -> Option<Pid> {
    let status = fs::read_to_string(format!("/proc/{task}/status")).ok()?;
    let number = status
        .lines()
        .find_map(|line| line.strip_prefix("TracerPid:"))?;
    number.trim().parse().ok().map(Pid::from_raw)
}

fn open_proc() -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open("/proc", flags, Mode::empty())
}
