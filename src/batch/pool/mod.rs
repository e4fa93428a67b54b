//! Applies a function to the items of an iterator in several threads, holding few items at a time.
//!
//! Memory does not depend on the number of items. Each thread reads its next item itself, and none reads while the
//! untaken results fill a window. This module knows nothing about sandboxes.

use std::any::Any;
use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::num::NonZeroUsize;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

pub use crate::protocol::caller::Order;

use crate::waiters::{Waiters, lock};

/// How many items per job may be started before their results are taken. The documentation of [`Order`] and
/// [`Batch::map`](super::Batch::map) states this number.
pub const WINDOW: usize = 4;

/// Lets a running function notice that it should stop.
pub trait Stopping {
    /// Waits for `time` or until the work is stopped, and returns which happened.
    fn pause(&self, time: Duration) -> Paused;
}

/// How a pause ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Paused {
    /// The time has elapsed.
    Elapsed,
    /// The work was stopped.
    Stopped,
}

/// An iterator over the results, which blocks until the next result.
pub struct Results<R>(Arc<dyn Taking<R>>);

/// The consumer's interface to the shared state.
pub trait Taking<R>: Send + Sync {
    /// Waits for the next result or panic. `None` if there are no more.
    fn take(&self) -> Option<thread::Result<R>>;
    /// Starts no further item. Results of started items are still returned.
    fn stop(&self);
    /// Waits until no function is running.
    fn wait_idle(&self);
}

/// Starts the threads.
///
/// # Errors
///
/// If a thread cannot be created (pthread_create(3)). Nothing is running then.
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
        state: Mutex::new(State::new(jobs, order, items, Arc::new(function))),
        work: Waiters::default(),
        ready: Waiters::default(),
        stop: Waiters::default(),
    });
    let results = Results(Arc::clone(&shared) as Arc<dyn Taking<R>>);
    for _ in 0..jobs.get() {
        let shared = Arc::clone(&shared);
        // The thread is not joined, because it may block on input that never comes.
        thread::Builder::new().spawn(move || {
            while let Some((number, item, function)) = shared.begin() {
                let done = catch_unwind(AssertUnwindSafe(|| function(item, &*shared)));
                // Dropped before `finish`: the function may own resources that must not outlive the results.
                drop(function);
                shared.finish(number, done);
            }
        })?;
    }
    Ok(results)
}

impl<R> Results<R> {
    /// Returns a handle that stops the work from another thread.
    pub fn stopper(&self) -> Arc<dyn Taking<R>> {
        Arc::clone(&self.0)
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
        match self.0.take()? {
            Ok(result) => Some(result),
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl<R> Drop for Results<R> {
    fn drop(&mut self) {
        self.0.stop();
        self.0.wait_idle();
    }
}

/// The state that workers and consumer share.
struct Shared<I, F, R> {
    state: Mutex<State<I, F, R>>,
    /// Notified when an item may be started. Workers wait for it.
    work: Waiters,
    /// Notified when a function has ended or no more will start. The consumer waits for it.
    ready: Waiters,
    /// Notified when the work is stopped. Pausing functions wait for it.
    stop: Waiters,
}

struct State<I, F, R> {
    jobs: usize,
    order: Order,
    input: Input<I>,
    /// The function, until the work is stopped.
    function: Option<Arc<F>>,
    begun: u64,
    finished: u64,
    taken: u64,
    /// Untaken results by turn. Turns are consecutive.
    done: BTreeMap<u64, thread::Result<R>>,
}

enum Input<I> {
    Open(I),
    /// A worker is reading the next item, which may block.
    BeingRead,
    Ended,
    Panicked(Box<dyn Any + Send>),
}

impl<I, F, R> State<I, F, R> {
    fn new(jobs: NonZeroUsize, order: Order, items: I, function: Arc<F>) -> Self {
        Self {
            jobs: jobs.get(),
            order,
            input: Input::Open(items),
            function: Some(function),
            begun: 0,
            finished: 0,
            taken: 0,
            done: BTreeMap::new(),
        }
    }

    fn may_read(&self) -> bool {
        let untaken = self.begun - self.taken;
        matches!(self.input, Input::Open(_)) && untaken < (self.jobs * WINDOW) as u64
    }

    /// Returns whether no further item will be started.
    fn is_over(&self) -> bool {
        self.function.is_none() || matches!(self.input, Input::Ended | Input::Panicked(_))
    }
}

impl<I: Iterator, F, R> Shared<I, F, R> {
    /// Waits for the next item. Returns its number, the item and the function.
    fn begin(&self) -> Option<(u64, I::Item, Arc<F>)> {
        let idle = |state: &mut State<I, F, R>| !state.is_over() && !state.may_read();
        let mut state = self.work.wait_while(lock(&self.state), Duration::MAX, idle);
        if state.is_over() {
            return None;
        }
        let Input::Open(mut items) = mem::replace(&mut state.input, Input::BeingRead) else {
            return None;
        };
        drop(state);
        let read = catch_unwind(AssertUnwindSafe(|| items.next()));
        let mut state = lock(&self.state);
        let item = match read {
            Ok(Some(item)) => {
                state.input = Input::Open(items);
                Some(item)
            }
            Ok(None) => {
                state.input = Input::Ended;
                None
            }
            Err(panic) => {
                state.input = Input::Panicked(panic);
                None
            }
        };
        let begun = item.zip(state.function.clone());
        if let Some((item, function)) = begun {
            let number = state.begun;
            state.begun += 1;
            drop(state);
            self.work.notify_one();
            return Some((number, item, function));
        }
        drop(state);
        self.work.notify_all();
        self.ready.notify_all();
        None
    }

    fn finish(&self, number: u64, result: thread::Result<R>) {
        let mut state = lock(&self.state);
        let turn = match state.order {
            Order::AsGiven => number,
            Order::AsFinished => state.finished,
        };
        state.finished += 1;
        state.done.insert(turn, result);
        drop(state);
        self.ready.notify_all();
    }
}

impl<I, F, R> Taking<R> for Shared<I, F, R>
where
    I: Iterator + Send,
    F: Send + Sync,
    R: Send,
{
    fn take(&self) -> Option<thread::Result<R>> {
        let not_yet = |state: &mut State<I, F, R>| {
            let none_will_come = state.is_over() && state.taken == state.begun;
            !(none_will_come || state.done.contains_key(&state.taken))
        };
        let mut state = self
            .ready
            .wait_while(lock(&self.state), Duration::MAX, not_yet);
        let turn = state.taken;
        if let Some(result) = state.done.remove(&turn) {
            state.taken += 1;
            drop(state);
            self.work.notify_one();
            return Some(result);
        }
        match mem::replace(&mut state.input, Input::Ended) {
            Input::Panicked(panic) => Some(Err(panic)),
            // Drop the input without the lock, because that may block.
            Input::Open(items) => {
                drop(state);
                drop(items);
                None
            }
            Input::BeingRead | Input::Ended => None,
        }
    }

    fn stop(&self) {
        let mut state = lock(&self.state);
        let function = state.function.take();
        drop(state);
        for waiters in [&self.work, &self.ready, &self.stop] {
            waiters.notify_all();
        }
        drop(function);
    }

    fn wait_idle(&self) {
        let running = |state: &mut State<I, F, R>| state.finished < state.begun;
        drop(
            self.ready
                .wait_while(lock(&self.state), Duration::MAX, running),
        );
    }
}

impl<I: Iterator + Send, F: Send + Sync, R: Send> Stopping for Shared<I, F, R> {
    fn pause(&self, time: Duration) -> Paused {
        let going = |state: &mut State<I, F, R>| state.function.is_some();
        let state = self.stop.wait_while(lock(&self.state), time, going);
        if state.function.is_none() {
            Paused::Stopped
        } else {
            Paused::Elapsed
        }
    }
}

#[cfg(test)]
mod tests;
