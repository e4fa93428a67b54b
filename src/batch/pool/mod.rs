//! Applies a function to the items of an iterator in several threads, with few items held at a
//! time.
//!
//! Memory does not depend on the number of items. As many items are read ahead as there are jobs,
//! and none is started while the results that wait to be taken fill a window. This module does not
//! know about sandboxes.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The order of the results.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Order {
    /// Each result as soon as it is ready.
    #[default]
    AsFinished,
    /// In the order of the tasks. A slow task holds up those behind it, once there are [`WINDOW`]
    /// times as many of them as jobs.
    AsGiven,
}

/// How many tasks per job may be started whose results wait to be taken.
pub const WINDOW: usize = 4;

/// Tells a running function when to stop.
pub trait Stopping {
    /// Waits for `time`, or until the work is stopped; returns which of the two.
    fn pause(&self, time: Duration) -> Paused;
}

/// The end of a pause.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Paused {
    /// The time is over.
    Elapsed,
    /// The work was stopped.
    Stopped,
}

/// The results, as an iterator that blocks until the next one.
pub struct Results<R> {
    side: Arc<dyn Taking<R>>,
    workers: Vec<JoinHandle<()>>,
}

/// Stops the work from another thread.
pub struct Stopper<R>(Arc<dyn Taking<R>>);

/// The consumer's side.
trait Taking<R>: Send + Sync {
    fn take(&self) -> Option<thread::Result<R>>;
    fn stop(&self);
}

/// Starts the work.
///
/// # Errors
///
/// When no thread can be made (pthread_create(3)). No thread is left running then.
pub fn work<T, R>(
    items: impl Iterator<Item = T> + Send + 'static,
    jobs: NonZeroUsize,
    order: Order,
    function: impl Fn(T, &dyn Stopping) -> R + Send + Sync + 'static,
) -> io::Result<Results<R>>
where
    T: Send + 'static,
    R: Send + 'static,
{
    let shared = Arc::new(Shared {
        state: Mutex::new(State::new(jobs, order)),
        room: Condvar::new(),
        work: Condvar::new(),
        ready: Condvar::new(),
        stop: Condvar::new(),
    });
    let mut results = Results {
        side: Arc::clone(&shared) as Arc<dyn Taking<R>>,
        workers: Vec::with_capacity(jobs.get()),
    };
    let function = Arc::new(function);
    for _ in 0..jobs.get() {
        let (shared, function) = (Arc::clone(&shared), Arc::clone(&function));
        let worker = thread::Builder::new().spawn(move || {
            while let Some((number, item)) = shared.begin() {
                let done = catch_unwind(AssertUnwindSafe(|| function(item, &*shared)));
                shared.finish(number, done);
            }
        })?;
        results.workers.push(worker);
    }
    // Not joined: it may wait for input that never comes. It holds only the input.
    thread::Builder::new().spawn(move || shared.read(items))?;
    Ok(results)
}

impl<R> Results<R> {
    /// A handle that stops the work.
    pub fn stopper(&self) -> Stopper<R> {
        Stopper(Arc::clone(&self.side))
    }
}

impl<R> Stopper<R> {
    /// Starts no further item. The results of started items still come.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl<R> Iterator for Results<R> {
    type Item = R;

    /// Waits for the next result and returns it.
    ///
    /// # Panics
    ///
    /// If the function or the iterator panicked.
    fn next(&mut self) -> Option<R> {
        match self.side.take()? {
            Ok(result) => Some(result),
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<R> Drop for Results<R> {
    fn drop(&mut self) {
        self.side.stop();
        for worker in self.workers.drain(..) {
            // A worker catches panics itself.
            _ = worker.join();
        }
    }
}

/// The state shared by reader, workers and consumer.
struct Shared<T, R> {
    state: Mutex<State<T, R>>,
    /// Notified when the queue has room: the reader waits for it.
    room: Condvar,
    /// Notified when an item may be started: workers wait for it.
    work: Condvar,
    /// Notified when a result is ready, or no more will come: the consumer waits for it.
    ready: Condvar,
    /// Notified when the work is stopped: paused functions wait for it.
    stop: Condvar,
}

struct State<T, R> {
    jobs: usize,
    order: Order,
    /// Items that were read and not started.
    queue: VecDeque<T>,
    input: Input,
    stopped: bool,
    begun: u64,
    finished: u64,
    taken: u64,
    /// Results that wait to be taken, by their turn: the numbers have no gaps.
    done: BTreeMap<u64, thread::Result<R>>,
}

enum Input {
    Open,
    Ended,
    Panicked(Box<dyn Any + Send>),
}

impl<T, R> State<T, R> {
    fn new(jobs: NonZeroUsize, order: Order) -> Self {
        Self {
            jobs: jobs.get(),
            order,
            queue: VecDeque::new(),
            input: Input::Open,
            stopped: false,
            begun: 0,
            finished: 0,
            taken: 0,
            done: BTreeMap::new(),
        }
    }

    fn has_room(&self) -> bool {
        self.queue.len() < self.jobs
    }

    fn may_begin(&self) -> bool {
        let untaken = self.begun - self.taken;
        !self.queue.is_empty() && untaken < (self.jobs * WINDOW) as u64
    }

    /// Whether no further item will be started.
    fn is_over(&self) -> bool {
        self.stopped || (self.queue.is_empty() && !matches!(self.input, Input::Open))
    }
}

impl<T, R> Shared<T, R> {
    fn lock(&self) -> MutexGuard<'_, State<T, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads until the input ends, or no more is needed.
    fn read(&self, mut items: impl Iterator<Item = T>) {
        let input = loop {
            match catch_unwind(AssertUnwindSafe(|| items.next())) {
                Ok(Some(item)) => {
                    let state = self.lock();
                    let full = |state: &mut State<T, R>| !state.stopped && !state.has_room();
                    let mut state = wait_while(&self.room, state, full);
                    if state.stopped {
                        break Input::Ended;
                    }
                    state.queue.push_back(item);
                    self.work.notify_one();
                }
                Ok(None) => break Input::Ended,
                Err(panic) => break Input::Panicked(panic),
            }
        };
        self.lock().input = input;
        self.work.notify_all();
        self.ready.notify_all();
    }

    /// Waits for the next item to work on. Returns it with its number.
    fn begin(&self) -> Option<(u64, T)> {
        let idle = |state: &mut State<T, R>| !state.is_over() && !state.may_begin();
        let mut state = wait_while(&self.work, self.lock(), idle);
        if state.is_over() {
            return None;
        }
        let item = state.queue.pop_front()?;
        let number = state.begun;
        state.begun += 1;
        self.room.notify_one();
        if state.is_over() {
            self.work.notify_all();
        }
        Some((number, item))
    }

    fn finish(&self, number: u64, result: thread::Result<R>) {
        let mut state = self.lock();
        let turn = match state.order {
            Order::AsGiven => number,
            Order::AsFinished => state.finished,
        };
        state.finished += 1;
        state.done.insert(turn, result);
        self.ready.notify_all();
    }
}

impl<T: Send, R: Send> Taking<R> for Shared<T, R> {
    fn take(&self) -> Option<thread::Result<R>> {
        let not_yet = |state: &mut State<T, R>| {
            let none_will_come = state.is_over() && state.taken == state.begun;
            !(none_will_come || state.done.contains_key(&state.taken))
        };
        let mut state = wait_while(&self.ready, self.lock(), not_yet);
        let turn = state.taken;
        if let Some(result) = state.done.remove(&turn) {
            state.taken += 1;
            self.work.notify_one();
            return Some(result);
        }
        match std::mem::replace(&mut state.input, Input::Ended) {
            Input::Panicked(panic) => Some(Err(panic)),
            Input::Open | Input::Ended => None,
        }
    }

    fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.queue.clear();
        for waiters in [&self.room, &self.work, &self.ready, &self.stop] {
            waiters.notify_all();
        }
    }
}

impl<T: Send, R: Send> Stopping for Shared<T, R> {
    fn pause(&self, time: Duration) -> Paused {
        let going = |state: &mut State<T, R>| !state.stopped;
        let waited = self.stop.wait_timeout_while(self.lock(), time, going);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if state.stopped {
            Paused::Stopped
        } else {
            Paused::Elapsed
        }
    }
}

fn wait_while<'a, S>(
    changed: &Condvar,
    guard: MutexGuard<'a, S>,
    condition: impl FnMut(&mut S) -> bool,
) -> MutexGuard<'a, S> {
    changed
        .wait_while(guard, condition)
        .unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
