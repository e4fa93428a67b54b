//! The drivers' threads. Each exists while it has a task.

use std::fmt;
use std::io;
use std::mem;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::errno::Errno;
use nix::sys::eventfd::{EfdFlags, EventFd};

use super::reactor::{Reactor, TaskNumber};
use super::tasks::{TaskFuture, drive};
use crate::host::processors;

/// How many processors have a driver in common. What a driver does for a worker is a small part of what the
/// worker does itself.
const PROCESSORS: usize = 4;

/// The drivers that have tasks.
static DRIVERS: Mutex<Vec<Arc<Inbox>>> = Mutex::new(Vec::new());

/// Starts a task on the driver that has the fewest, which may be a new one. `make` is called there, and its
/// future never leaves that thread.
///
/// # Errors
///
/// When the process has no thread or descriptor left.
pub fn spawn<F>(make: impl FnOnce() -> F + Send + 'static) -> io::Result<Spawned>
where
    F: Future<Output = ()> + 'static,
{
    let make: Make = Box::new(move || Box::pin(make()));
    // A driver ends under this lock, so that none of these does meanwhile.
    let mut drivers = lock(&DRIVERS);
    if drivers.len() >= processors().get().div_ceil(PROCESSORS)
        && let Some(inbox) = drivers
            .iter()
            .min_by_key(|inbox| Arc::strong_count(&inbox.tasks))
    {
        return Ok(inbox.begin(make));
    }
    let inbox = Arc::new(Inbox::new()?);
    let set = Reactor::set(&inbox)?;
    let spawned = inbox.begin(make);
    let own = Arc::clone(&inbox);
    let builder = thread::Builder::new().name("driver".into());
    builder.spawn(move || drive(Reactor::new(set, own)))?;
    drivers.push(inbox);
    Ok(spawned)
}

/// A task of a driver. It goes on if this is dropped.
#[derive(Debug)]
pub struct Spawned(Arc<Ended>);

#[derive(Debug, Default)]
struct Ended {
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Spawned {
    /// Whether nothing of the task is left.
    pub fn is_over(&self) -> bool {
        *lock(&self.0.is_over)
    }

    /// Waits until nothing of the task is left.
    pub fn join(self) {
        let over = lock(&self.0.is_over);
        let over = self.0.changed.wait_while(over, |is_over| !*is_over);
        drop(over.unwrap_or_else(PoisonError::into_inner));
    }
}

/// What belongs to a task until it is over, however it ends.
pub struct New {
    ended: Arc<Ended>,
    /// The driver counts its tasks by these.
    _counted: Arc<()>,
}

impl Drop for New {
    fn drop(&mut self) {
        *lock(&self.ended.is_over) = true;
        self.ended.changed.notify_all();
    }
}

/// Makes the future of a task.
pub type Make = Box<dyn FnOnce() -> TaskFuture + Send>;

/// What a driver is sent.
pub enum Message {
    /// Begin a task.
    Begin(Make, New),
    /// Give a task a turn.
    Wake(TaskNumber),
}

/// The messages for one driver.
pub struct Inbox {
    /// Written to for a driver that sleeps.
    bell: EventFd,
    tasks: Arc<()>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    messages: Vec<Message>,
    sleeps: bool,
}

impl Inbox {
    pub fn new() -> Result<Self, Errno> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            bell: EventFd::from_flags(flags)?,
            tasks: Arc::default(),
            state: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Readable when a message has come for a driver that sleeps.
    pub fn bell(&self) -> &EventFd {
        &self.bell
    }

    /// Sends a task.
    pub fn begin(&self, make: Make) -> Spawned {
        let ended = Arc::new(Ended::default());
        let new = New {
            ended: Arc::clone(&ended),
            _counted: Arc::clone(&self.tasks),
        };
        self.send(Message::Begin(make, new));
        Spawned(ended)
    }

    /// Sends a message. A driver that has ended has no task left to receive it.
    pub fn send(&self, message: Message) {
        let mut state = self.lock();
        state.messages.push(message);
        let sleeps = mem::take(&mut state.sleeps);
        drop(state);
        if sleeps {
            // Fails only after 2^64 writes.
            _ = self.bell.write(1);
        }
    }

    /// The messages so far.
    pub fn receive(&self) -> Vec<Message> {
        mem::take(&mut self.lock().messages)
    }

    /// Whether there are any.
    pub fn has_messages(&self) -> bool {
        !self.lock().messages.is_empty()
    }

    /// Notes that the driver sleeps, unless there are messages. Returns whether it may.
    pub fn may_sleep(&self) -> bool {
        let mut state = self.lock();
        state.sleeps = state.messages.is_empty();
        state.sleeps
    }

    /// Notes that the driver does not sleep.
    pub fn is_awake(&self) {
        self.lock().sleeps = false;
    }

    /// Ends, unless there are messages. Returns whether it does.
    pub fn end(self: &Arc<Self>) -> bool {
        let mut drivers = lock(&DRIVERS);
        let is_over = !self.has_messages();
        if is_over {
            drivers.retain(|other| !Arc::ptr_eq(other, self));
        }
        is_over
    }

    /// Ends because the kernel refuses to wait. The tasks are dropped.
    pub fn fail(self: &Arc<Self>, errno: Errno) {
        tracing::error!(%errno, "a driver of sessions ends: epoll_wait(2) failed");
        while !self.end() {
            drop(self.receive());
        }
    }
}

impl fmt::Debug for Inbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
