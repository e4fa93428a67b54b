//! Maps tasks to results.

use std::convert::Infallible;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use super::pool::{self, Results, Stopping, Taking};
use super::retry::retry;
use super::room::{Room, Under};
use super::sandboxes::Sandboxes;
use super::{Done, Order, Task};
use crate::capacity::{Capacity, Needs};
use crate::error::{Error, ErrorKind};
use crate::host::{Headroom, processors};
use crate::sandbox::Sandbox;
use crate::supervisor::Cancel;

/// The settings of a batch.
#[derive(Debug)]
pub struct Batch {
    sandbox: Arc<Sandbox>,
    jobs: Option<NonZeroUsize>,
    order: Order,
}

impl Batch {
    /// Creates a batch whose tasks run in this sandbox, except tasks with their own policy.
    pub fn new(sandbox: impl Into<Arc<Sandbox>>) -> Self {
        Self {
            sandbox: sandbox.into(),
            jobs: None,
            order: Order::default(),
        }
    }

    /// Sets how many tasks run at once. The default is the number of processors, or fewer if the host lacks the
    /// resources for that many ([`Capacity`]). A task under its own policy waits until the host has the resources for
    /// it beside the running tasks.
    #[must_use]
    pub fn jobs(mut self, jobs: NonZeroUsize) -> Self {
        self.jobs = Some(jobs);
        self
    }

    /// Sets the order of the results. By default results arrive as tasks finish.
    #[must_use]
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Starts the batch. A task is read from the iterator only when it can start. No task starts while the number of
    /// untaken results is four times the number of jobs.
    ///
    /// # Errors
    ///
    /// If the process has no thread or descriptor left.
    pub fn map<I>(self, tasks: I) -> io::Result<impl Iterator<Item = Done> + use<I>>
    where
        I: IntoIterator<Item = Task>,
        I::IntoIter: Send + 'static,
    {
        let mapped = self.try_map(tasks.into_iter().map(Ok::<_, Infallible>))?;
        Ok(mapped.map(|Ok(done)| done))
    }

    /// Like [`map`](Self::map), for a source that may fail: its errors are returned among the results.
    ///
    /// # Errors
    ///
    /// If the process has no thread or descriptor left.
    pub fn try_map<I, E>(self, tasks: I) -> io::Result<Mapped<E>>
    where
        I: IntoIterator<Item = Result<Task, E>>,
        I::IntoIter: Send + 'static,
        E: Send + 'static,
    {
        let jobs = self.jobs.unwrap_or_else(|| default_jobs(&self.sandbox));
        let cancel = Cancel::new()?;
        let worker = Worker {
            room: Room::new(jobs.get(), Needs::of(&self.sandbox)),
            sandboxes: Sandboxes::new(self.sandbox),
            cancel: cancel.clone(),
        };
        let results = pool::work(
            tasks.into_iter(),
            jobs,
            self.order,
            move |task, stopping| task.map(|task| worker.run(task, stopping)),
        )?;
        Ok(Mapped { results, cancel })
    }
}

fn default_jobs(sandbox: &Sandbox) -> NonZeroUsize {
    Capacity::of(sandbox).runs.min(processors())
}

/// An iterator over the results of a batch. Dropping it cancels the running tasks, and waits until they have ended.
pub struct Mapped<E> {
    results: Results<Result<Done, E>>,
    cancel: Cancel,
}

impl<E> Mapped<E> {
    /// Returns a handle that ends the batch early.
    pub fn call_off(&self) -> CallOff<E> {
        CallOff {
            stopper: self.results.stopper(),
            cancel: self.cancel.clone(),
        }
    }
}

impl<E> Iterator for Mapped<E> {
    type Item = Result<Done, E>;

    fn next(&mut self) -> Option<Self::Item> {
        self.results.next()
    }
}

impl<E> Drop for Mapped<E> {
    fn drop(&mut self) {
        self.call_off().now();
    }
}

/// Ends a batch early, from any thread.
pub struct CallOff<E> {
    stopper: Arc<dyn Taking<Result<Done, E>>>,
    cancel: Cancel,
}

impl<E> CallOff<E> {
    /// Starts no further task. Results of running tasks are still returned.
    pub fn begin_no_more(&self) {
        self.stopper.stop();
    }

    /// Starts no further task, and cancels the running tasks: their outcome is `interrupted`.
    pub fn now(&self) {
        self.stopper.stop();
        self.cancel.cancel();
    }
}

/// Runs single tasks.
struct Worker {
    room: Room,
    sandboxes: Sandboxes,
    cancel: Cancel,
}

impl Worker {
    fn run(&self, task: Task, stopping: &dyn Stopping) -> Done {
        let begun = Instant::now();
        let request = task.request.cancel(&self.cancel);
        let attempt = || {
            let sandbox = self.sandboxes.get(task.policy.as_deref(), &self.cancel)?;
            let under = task.policy.as_ref().map_or(Under::Batch, |_| Under::Own);
            let needs = Needs::of(&sandbox);
            let _part = self.room.enter(needs, under, &self.cancel, Headroom::now);
            sandbox.run(&request)
        };
        let pause = |time| stopping.pause(time);
        let (result, attempts) = retry(attempt, is_transient, pause);
        let judged = task.expect.zip(result.as_ref().ok());
        Done {
            id: task.id,
            verdict: judged.and_then(|(expect, outcome)| expect.judge(outcome)),
            result: result.map(Box::new),
            attempts,
            elapsed: begun.elapsed(),
        }
    }
}

/// Returns whether another attempt may succeed. It cannot if the request or the policy is invalid, or if the host
/// cannot enforce the policy. An exhausted resource of the host is reported as a system error, which may pass.
fn is_transient(error: &Error) -> bool {
    let lasting = [ErrorKind::Policy, ErrorKind::Request, ErrorKind::Host];
    !lasting.contains(&error.kind())
}
