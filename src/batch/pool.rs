//! A function over the items of an iterator, in several threads, with few items held at a time.
//!
//! What is held does not depend on how many items there are: as many are read ahead as there are
//! jobs, and no item is begun while the results that nobody has taken yet fill a window. Knows
//! nothing of sandboxes.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// In which order results come.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Order {
    /// Each as soon as it is there.
    #[default]
    AsFinished,
    /// As the tasks were given. One that takes long holds up those behind it, once there are
    /// [`WINDOW`] times as many of them as jobs.
    AsGiven,
}

/// For each job, how many tasks may be begun whose results nobody has taken yet.
pub const WINDOW: usize = 4;

/// What a function is told while it works.
pub trait Stopping {
    /// Waits that long, or until the work is stopped: then it answers `Stopped`.
    fn pause(&self, time: Duration) -> Paused;
}

/// How a pause ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Paused {
    /// The time is over.
    Elapsed,
    /// The work is to be stopped.
    Stopped,
}

/// The results, which come as they are asked for.
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

/// Begins to work.
///
/// # Errors
///
/// When no thread can be made (pthread_create(3)). Nothing goes on then.
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
    // Not joined: it may wait for input that never comes. It holds nothing but the input.
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
    /// No item is begun from here on. The results of those that were still come.
    pub fn stop(&self) {
        self.0.stop();
    }
}

impl<R> Iterator for Results<R> {
    type Item = R;

    /// The next result; waits for it.
    ///
    /// # Panics
    ///
    /// Where the function or the iterator did.
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
            // A worker catches what panics in it.
            _ = worker.join();
        }
    }
}

/// What reader, workers and consumer share.
struct Shared<T, R> {
    state: Mutex<State<T, R>>,
    /// Told when the queue has room: the reader waits.
    room: Condvar,
    /// Told when an item may be begun: workers wait.
    work: Condvar,
    /// Told when a result is there, or none will come any more: the consumer waits.
    ready: Condvar,
    /// Told when the work is stopped: functions pause.
    stop: Condvar,
}

struct State<T, R> {
    jobs: usize,
    order: Order,
    /// Read and not begun.
    queue: VecDeque<T>,
    input: Input,
    stopped: bool,
    begun: u64,
    finished: u64,
    taken: u64,
    /// Results that nobody has taken, by when it is their turn: the numbers have no gaps.
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

    /// Whether nothing will be begun any more.
    fn is_over(&self) -> bool {
        self.stopped || (self.queue.is_empty() && !matches!(self.input, Input::Open))
    }
}

impl<T, R> Shared<T, R> {
    fn lock(&self) -> MutexGuard<'_, State<T, R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads until there is nothing more, or nothing more is wanted.
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

    /// The next item to work on, with its number; waits for it.
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
        for told in [&self.room, &self.work, &self.ready, &self.stop] {
            told.notify_all();
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
    told: &Condvar,
    guard: MutexGuard<'a, S>,
    condition: impl FnMut(&mut S) -> bool,
) -> MutexGuard<'a, S> {
    told.wait_while(guard, condition)
        .unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
