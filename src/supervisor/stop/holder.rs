//! The thread that holds guests: ptrace(2) knows threads, not processes, as tracers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;
use nix::unistd::Pid;
use sandfork_jail::sys::hold::{self, Event};
use sandfork_jail::sys::procfs;

use super::{Guest, HoldError};

/// How long it may take to hold all tasks. A guest whose processes end as fast as they start others could
/// keep it busy for ever.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long to wait for a task that is inside the kernel, where it runs no code of its own: the parent of a
/// vfork(2) leaves it only after its child.
const INSIDE: Duration = Duration::from_millis(50);

/// How long to sleep between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// A thread that holds guests. Guests that it holds die with it.
pub struct Holder {
    commands: Sender<Command>,
    answers: Receiver<Result<(), HoldError>>,
}

enum Command {
    Hold(Vec<Guest>),
    Release,
}

impl Holder {
    /// Starts the thread.
    pub fn start() -> Result<Self, HoldError> {
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
        thread.map_err(|_| HoldError::NoThread)?;
        Ok(Self { commands, answers })
    }

    /// Holds every task of these guests, or none.
    pub fn hold(&self, guests: Vec<Guest>) -> Result<(), HoldError> {
        self.ask(Command::Hold(guests))
    }

    /// Lets all tasks go on.
    pub fn release(&self) {
        // Fails if the thread is gone, and with it the guests.
        _ = self.ask(Command::Release);
    }

    fn ask(&self, command: Command) -> Result<(), HoldError> {
        _ = self.commands.send(command);
        self.answers.recv().unwrap_or(Err(HoldError::NoThread))
    }
}

/// The tasks that the thread holds.
#[derive(Default)]
struct Tasks {
    /// With the signal that each was about to receive; `None` while it is inside the kernel.
    held: BTreeMap<Pid, Option<libc::c_int>>,
    /// Whether tasks that come out of the kernel may go on.
    is_over: bool,
}

impl Tasks {
    /// Waits for a command. Meanwhile it lets tasks go on that were inside the kernel.
    fn next(&mut self, commands: &Receiver<Command>) -> Option<Command> {
        loop {
            if self.held.is_empty() || !self.is_over {
                return commands.recv().ok();
            }
            match commands.recv_timeout(PAUSE) {
                Err(RecvTimeoutError::Timeout) => self.release(),
                received => return received.ok(),
            }
        }
    }

    fn hold(&mut self, guests: &[Guest]) -> Result<(), HoldError> {
        self.is_over = false;
        let held = self.hold_all(guests);
        if held.is_err() {
            self.release();
        }
        held
    }

    /// Looks for tasks until all are held and a look finds no other: a task may start another one until it
    /// stands still.
    fn hold_all(&mut self, guests: &[Guest]) -> Result<(), HoldError> {
        let proc = open_proc().map_err(HoldError::Refused)?;
        let begun = Instant::now();
        let mut calm_since = None;
        loop {
            let found = tasks_of(&proc, guests);
            // A number that was found may have become another process's before it was held.
            self.forget_strangers(&found);
            let mut is_calm = true;
            for task in &found {
                is_calm &= !self.seize(*task)?;
            }
            self.learn();
            if is_calm {
                let since: &mut Instant = calm_since.get_or_insert_with(Instant::now);
                if self.held.values().all(Option::is_some) || since.elapsed() > INSIDE {
                    return Ok(());
                }
            } else {
                calm_since = None;
            }
            if begun.elapsed() > PATIENCE {
                return Err(HoldError::TooFast);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Begins to hold a task. Returns whether it was not held before.
    fn seize(&mut self, task: Pid) -> Result<bool, HoldError> {
        if self.held.contains_key(&task) {
            return Ok(false);
        }
        match hold::seize(task).and_then(|()| hold::interrupt(task)) {
            Ok(()) => {
                self.held.insert(task, None);
                Ok(true)
            }
            // It has ended, or its end was not waited for yet.
            Err(_) if has_ended(task) => Ok(false),
            Err(errno) => Err(HoldError::Refused(errno)),
        }
    }

    /// Lets tasks go on that are not among those that were found.
    fn forget_strangers(&mut self, found: &BTreeSet<Pid>) {
        self.learn();
        let strangers = |task: &Pid, signal: Option<libc::c_int>| {
            found.contains(task)
                || signal.is_none_or(|signal| hold::release(*task, signal).is_err())
        };
        self.held.retain(|task, signal| strangers(task, *signal));
    }

    /// Notes which tasks stand still by now, and forgets those that have ended.
    fn learn(&mut self) {
        self.held.retain(|task, signal| {
            if signal.is_some() {
                return !matches!(hold::event(*task), Ok(Some(Event::Ended)) | Err(_));
            }
            match hold::event(*task) {
                Ok(Some(Event::Stopped(before))) => *signal = Some(before),
                Ok(None) => {}
                Ok(Some(Event::Ended)) | Err(_) => return false,
            }
            true
        });
    }

    /// Lets all go on that stand still.
    fn release(&mut self) {
        self.is_over = true;
        self.learn();
        self.held.retain(|task, signal| {
            signal.is_none_or(|signal| hold::release(*task, signal).is_err())
        });
    }
}

/// Every task of these guests.
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

/// Whether a task is gone or about to be.
fn has_ended(task: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{task}/stat"));
    let stat = stat.ok().and_then(|text| procfs::Stat::parse(&text));
    stat.is_none_or(|stat| stat.is_exiting() || matches!(stat.state, 'Z' | 'X'))
}

fn open_proc() -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    open("/proc", flags, Mode::empty())
}
