//! What a driver waits for: descriptors in an epoll(7) set, times, and wakes from other threads.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::rc::Rc;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use nix::errno::Errno;
use nix::poll::{PollFlags, PollTimeout};
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use super::threads::Inbox;
use super::wait::patience;
use crate::supervisor::clock;
use sandfork_jail::sys::epoll::{Change, change};

/// How many events are taken at once.
const EVENTS: usize = 128;

/// The number of a task of a driver.
pub type TaskNumber = usize;

/// What one task waits for of one descriptor.
#[derive(Debug)]
pub struct Watch {
    task: TaskNumber,
    /// Whether the task waits for it now.
    waiting: Rc<Cell<bool>>,
    events: Cell<PollFlags>,
    /// What has happened since the task began to wait.
    pub found: Cell<PollFlags>,
}

impl Watch {
    /// Of a task whose waits set `waiting`.
    pub fn new(task: TaskNumber, waiting: &Rc<Cell<bool>>) -> Self {
        Self {
            task,
            waiting: Rc::clone(waiting),
            events: Cell::new(PollFlags::empty()),
            found: Cell::new(PollFlags::empty()),
        }
    }
}

/// The reactor of one driver.
#[derive(Debug)]
pub struct Reactor {
    set: Epoll,
    /// Messages of other threads.
    pub inbox: Arc<Inbox>,
    current: Cell<TaskNumber>,
    /// What is watched, by the descriptor's number.
    watched: RefCell<Vec<Watched>>,
    times: RefCell<Times>,
    ready: RefCell<Ready>,
}

/// The tasks that can go on, each once.
#[derive(Debug, Default)]
struct Ready {
    queue: VecDeque<TaskNumber>,
    /// Whether a task is in the queue, by its number.
    is_queued: Vec<bool>,
}

/// The tasks that wait for one descriptor. Several may: those of a batch share the handle that cancels it.
#[derive(Debug, Default)]
struct Watched {
    watches: Vec<Rc<Watch>>,
    /// What the set reports of it; `None` if it is not in the set.
    events: Option<PollFlags>,
}

#[derive(Debug, Default)]
struct Times {
    /// When each sleeping task wants to be woken, if it does.
    until: BTreeSet<(Instant, TaskNumber)>,
    /// The same by task.
    of_task: Vec<Option<Instant>>,
    /// Until when the thread does not sleep.
    awake: Option<Instant>,
}

impl Reactor {
    /// The set of a driver with this inbox.
    pub fn set(inbox: &Inbox) -> Result<Epoll, Errno> {
        let set = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let bell = inbox.bell().as_raw_fd();
        change(set.0.as_fd(), Change::Add, bell, EpollFlags::EPOLLIN)?;
        Ok(set)
    }

    /// A reactor with this set and inbox.
    pub fn new(set: Epoll, inbox: Arc<Inbox>) -> Self {
        Self {
            set,
            inbox,
            current: Cell::new(0),
            watched: RefCell::default(),
            times: RefCell::default(),
            ready: RefCell::default(),
        }
    }

    /// The task that has its turn.
    pub fn current(&self) -> TaskNumber {
        self.current.get()
    }

    /// Watches a descriptor for a task.
    pub fn watch(&self, number: RawFd, watch: &Rc<Watch>, events: PollFlags) -> Result<(), Errno> {
        if watch.events.replace(events) == events {
            return Ok(());
        }
        let mut watched = self.watched.borrow_mut();
        let place = place(number);
        if watched.len() <= place {
            watched.resize_with(place + 1, Watched::default);
        }
        let found = &mut watched[place];
        if !found.watches.iter().any(|other| Rc::ptr_eq(other, watch)) {
            found.watches.push(Rc::clone(watch));
        }
        let done = self.adapt(number, found);
        if done.is_err() {
            watch.events.set(PollFlags::empty());
        }
        done
    }

    /// Watches it no longer.
    pub fn forget(&self, number: RawFd, watch: &Rc<Watch>) {
        let mut watched = self.watched.borrow_mut();
        if let Some(found) = watched.get_mut(place(number)) {
            found.watches.retain(|other| !Rc::ptr_eq(other, watch));
            // Fails only if the others' could not be watched either.
            _ = self.adapt(number, found);
        }
    }

    /// Has the set report what the tasks wait for.
    fn adapt(&self, number: RawFd, watched: &mut Watched) -> Result<(), Errno> {
        let events = watched.watches.iter().map(|watch| watch.events.get());
        let wanted = events
            .reduce(PollFlags::union)
            .filter(|events| !events.is_empty());
        if watched.events == wanted {
            return Ok(());
        }
        let how = match (watched.events, wanted) {
            (_, None) => Change::Remove,
            (None, Some(_)) => Change::Add,
            (Some(_), Some(_)) => Change::Modify,
        };
        let flags = wanted.map_or(EpollFlags::empty(), |events| {
            EpollFlags::from_bits_truncate(events.bits().into())
        });
        let set = self.set.0.as_fd();
        // The kernel removes a descriptor that is closed, and its number may already be another's.
        match (how, change(set, how, number, flags)) {
            (Change::Remove, _) => {}
            (Change::Modify, Err(Errno::ENOENT)) => change(set, Change::Add, number, flags)?,
            (_, changed) => changed?,
        }
        watched.events = wanted;
        Ok(())
    }

    /// Lets the current task wait. `awake` and `until` are as of [`Waits::any`](super::Waits::any).
    pub fn sleep(&self, awake: Option<Instant>, until: Option<Instant>) {
        let mut times = self.times.borrow_mut();
        times.awake = times.awake.max(awake);
        times.set(self.current.get(), until);
    }

    /// Gives a task a turn.
    pub fn wake(&self, task: TaskNumber) {
        self.times.borrow_mut().set(task, None);
        self.ready.borrow_mut().add(task);
    }

    fn has_ready(&self) -> bool {
        !self.ready.borrow().queue.is_empty()
    }

    /// The tasks that have a turn now, one after the other.
    pub fn turns(&self) -> impl Iterator<Item = TaskNumber> + '_ {
        let round = self.ready.borrow().queue.len();
        (0..round).filter_map(|_| {
            let task = self.ready.borrow_mut().next()?;
            self.current.set(task);
            Some(task)
        })
    }

    /// Waits until a task can go on, or a message came.
    pub fn wait(&self) -> Result<(), Errno> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let found = self.sleep_in(&mut events);
        self.inbox.is_awake();
        let found = match found {
            Err(Errno::EINTR) => 0,
            other => other?,
        };
        for event in &events[..found] {
            self.note(event);
        }
        let now = clock::now();
        while let Some(task) = { self.times.borrow_mut().pop_due(now) } {
            self.wake(task);
        }
        Ok(())
    }

    fn sleep_in(&self, events: &mut [EpollEvent]) -> Result<usize, Errno> {
        let (awake, until) = self.times.borrow_mut().next();
        while !self.has_ready() && awake.is_some_and(|awake| clock::now() < awake) {
            let found = self.set.wait(events, EpollTimeout::ZERO)?;
            if found > 0 || self.inbox.has_messages() {
                return Ok(found);
            }
            thread::yield_now();
        }
        let patience = if !self.has_ready() && self.inbox.may_sleep() {
            patience(until)
        } else {
            PollTimeout::ZERO
        };
        let patience = EpollTimeout::try_from(i32::from(patience)).unwrap_or(EpollTimeout::ZERO);
        self.set.wait(events, patience)
    }

    fn note(&self, event: &EpollEvent) {
        let number = RawFd::try_from(event.data()).unwrap_or(-1);
        if number == self.inbox.bell().as_raw_fd() {
            // Fails if it was read already.
            _ = self.inbox.bell().read();
            return;
        }
        let events = of_epoll(event.events());
        let mut watched = self.watched.borrow_mut();
        let Some(found) = watched.get_mut(place(number)) else {
            return;
        };
        for watch in &found.watches {
            if !watch.waiting.get() {
                // The task waits for something else. When it waits for this again, it is watched again.
                watch.events.set(PollFlags::empty());
            } else if let events = events & (watch.events.get() | ALWAYS)
                && !events.is_empty()
            {
                watch.found.set(watch.found.get() | events);
                self.wake(watch.task);
            }
        }
        // Fails only if it could not be watched either.
        _ = self.adapt(number, found);
    }
}

/// What poll(2) and epoll(7) report without being asked.
const ALWAYS: PollFlags = PollFlags::POLLERR.union(PollFlags::POLLHUP);

/// The same events as of poll(2), whose numbers are the same.
fn of_epoll(events: EpollFlags) -> PollFlags {
    i16::try_from(events.bits()).map_or(PollFlags::POLLERR, PollFlags::from_bits_truncate)
}

fn place(number: RawFd) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

impl Ready {
    fn add(&mut self, task: TaskNumber) {
        if self.is_queued.len() <= task {
            self.is_queued.resize(task + 1, false);
        }
        if !std::mem::replace(&mut self.is_queued[task], true) {
            self.queue.push_back(task);
        }
    }

    fn next(&mut self) -> Option<TaskNumber> {
        let task = self.queue.pop_front()?;
        self.is_queued[task] = false;
        Some(task)
    }
}

impl Times {
    fn set(&mut self, task: TaskNumber, until: Option<Instant>) {
        if self.of_task.len() <= task {
            self.of_task.resize(task + 1, None);
        }
        if let Some(before) = std::mem::replace(&mut self.of_task[task], until) {
            self.until.remove(&(before, task));
        }
        if let Some(until) = until {
            self.until.insert((until, task));
        }
    }

    /// Until when not to sleep, and when the first task is due.
    fn next(&mut self) -> (Option<Instant>, Option<Instant>) {
        (self.awake.take(), self.until.first().map(|first| first.0))
    }

    fn pop_due(&mut self, now: Instant) -> Option<TaskNumber> {
        let (until, task) = *self.until.first()?;
        (until <= now).then(|| {
            self.set(task, None);
            task
        })
    }
}
