//! Keeps workers ready before they are requested, so that forking, jailing and verifying them are already done when a
//! run or a session starts.
//!
//! A parked worker is as fresh as any other: no guest code has run in it. A thread of the sandbox parks as many workers
//! as [`Demand`] computes, and none before the first request.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::demand::Demand;
use super::{Inner, nothing_to_read};
use crate::protocol::message::WorkerMode;
use crate::supervisor::{Deferred, SupervisorError, VerifiedWorker, Zygote, clock};
use crate::waiters::{Waiters, lock};
use sandfork_jail::control::CpuBudgetScope;

/// How long the thread pauses after it failed to make a worker. The next request reports the error.
const PAUSE: Duration = Duration::from_secs(1);

/// The kinds of parked workers, in shelf order. Each kind has a separate shelf.
const KINDS: [CpuBudgetScope; 2] = [CpuBudgetScope::Life, CpuBudgetScope::Cell];

/// A ready worker, and the zygote that must outlive it.
#[derive(Debug)]
pub struct Parked {
    // Dropped first.
    pub verified: VerifiedWorker,
    pub zygote: Arc<Zygote>,
}

/// A thread that ends a replaced worker. The kernel takes 15 ms to free a worker of 500 MB, for which the next worker's
/// caller need not wait. Dropping this waits, so that nothing outlives the session.
#[derive(Debug, Default)]
pub struct Former(Option<JoinHandle<()>>);

impl Former {
    /// Ends a worker, once the previous one has ended: repeated rollbacks cannot accumulate dying workers.
    pub fn end(&mut self, worker: Parked) {
        self.wait();
        // If no thread can be started, the closure and with it the worker are dropped here.
        let thread = thread::Builder::new().name("former worker".into());
        self.0 = thread.spawn(move || drop(worker)).ok();
    }

    fn wait(&mut self) {
        // The thread has nothing to return, and a panic in it has been printed.
        _ = self.0.take().map(JoinHandle::join);
    }
}

impl Drop for Former {
    fn drop(&mut self) {
        self.wait();
    }
}

/// The parked workers of a sandbox.
#[derive(Debug)]
pub struct Pool {
    state: Mutex<State>,
    /// Notified when a worker was taken, and when the sandbox closes.
    changed: Waiters,
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    shelves: [Shelf; KINDS.len()],
    phase: Phase,
    /// How long the last worker took to make.
    birth: Duration,
}

#[derive(Debug, Default)]
struct Shelf {
    parked: VecDeque<Parked>,
    demand: Demand,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Phase {
    /// No worker has been requested yet.
    #[default]
    Idle,
    /// The thread runs.
    Filling,
    /// The sandbox is being dropped.
    Closing,
}

impl Pool {
    /// Creates a pool of at most `most` workers of each kind.
    pub fn new(most: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Waiters::default(),
            most,
        }
    }

    /// Takes a ready worker, if there is one. Counts the request either way; the caller notifies the thread later.
    fn take(&self, cpu: CpuBudgetScope) -> Option<Parked> {
        let mut state = lock(&self.state);
        let wanted = &mut state.shelves[cpu as usize];
        wanted.demand.note(Instant::now());
        let mut dead = Vec::new();
        // The oldest worker, so that none waits much longer than the others.
        let taken = loop {
            match wanted.parked.pop_front() {
                Some(parked) if parked.verified.worker.has_ended() => dead.push(parked),
                other => break other,
            }
        };
        // Release the lock first: reaping dead workers takes time.
        drop(state);
        taken
    }

    /// Returns the next task; the caller holds the lock. `Err` means that there is nothing to do until the next
    /// request, or until the time in it.
    fn next_task(state: &mut State, most: usize) -> Result<Task, Option<Instant>> {
        let now = Instant::now();
        let birth = state.birth;
        for (cpu, shelf) in KINDS.into_iter().zip(&mut state.shelves) {
            let ready = shelf.demand.ready(now, birth, most);
            if shelf.parked.len() < ready {
                return Ok(Task::Park(cpu));
            }
            if shelf.parked.len() > ready + 1 || (ready == 0 && !shelf.parked.is_empty()) {
                return Ok(Task::End(shelf.parked.drain(ready..).collect()));
            }
        }
        let forgotten = |shelf: &Shelf| {
            let parked = !shelf.parked.is_empty();
            shelf.demand.forgotten().filter(|_| parked)
        };
        Err(state.shelves.iter().filter_map(forgotten).min())
    }
}

enum Task {
    Park(CpuBudgetScope),
    End(Vec<Parked>),
}

fn worker_mode(cpu: CpuBudgetScope) -> WorkerMode {
    match cpu {
        CpuBudgetScope::Life => WorkerMode::OneRun,
        CpuBudgetScope::Cell => WorkerMode::Session,
    }
}

/// The thread that fills a pool. [`close`](Self::close) ends the thread and the parked workers.
#[derive(Debug, Default)]
pub struct Filler(Mutex<Option<JoinHandle<()>>>);

impl Filler {
    /// Takes a ready worker, if there is one, and returns a guard that refills the pool later, because making another
    /// worker occupies a processor for as long as a small run. The first call starts the thread.
    pub fn take<'p>(
        &self,
        inner: &'p Arc<Inner>,
        cpu: CpuBudgetScope,
    ) -> (Option<Parked>, Option<Deferred<'p>>) {
        if inner.pool.most == 0 {
            return (None, None);
        }
        if lock(&inner.pool.state).phase == Phase::Idle {
            self.start(inner);
        }
        let changed = &inner.pool.changed;
        let refill = Deferred::new(clock::now(), || changed.notify_one());
        (inner.pool.take(cpu), Some(refill))
    }

    fn start(&self, inner: &Arc<Inner>) {
        let mut thread = lock(&self.0);
        let mut state = lock(&inner.pool.state);
        if state.phase != Phase::Idle {
            return;
        }
        let filled = Arc::clone(inner);
        let builder = thread::Builder::new().name("pool".into());
        // If no thread can be started, every worker is made on request.
        if let Ok(started) = builder.spawn(move || fill(&filled)) {
            *thread = Some(started);
            state.phase = Phase::Filling;
        }
    }

    /// Ends the thread and the parked workers.
    pub fn close(&self, inner: &Inner) {
        let mut state = lock(&inner.pool.state);
        state.phase = Phase::Closing;
        let parked: Vec<Parked> = state
            .shelves
            .iter_mut()
            .flat_map(|shelf| shelf.parked.drain(..))
            .collect();
        drop(state);
        inner.pool.changed.notify_one();
        drop(parked);
        let thread = lock(&self.0).take();
        if let Some(thread) = thread {
            // A thread that panicked has reported that itself.
            _ = thread.join();
        }
    }
}

/// Parks workers until the sandbox is dropped.
fn fill(inner: &Inner) {
    let pool = &inner.pool;
    let mut state = lock(&pool.state);
    while state.phase != Phase::Closing {
        state = match Pool::next_task(&mut state, pool.most) {
            Ok(Task::Park(cpu)) => {
                drop(state);
                let started = Instant::now();
                let made = inner.park(cpu, None).and_then(|parked| {
                    parked.verified.rehearse(worker_mode(cpu))?;
                    Ok(parked)
                });
                let mut state = lock(&pool.state);
                match made {
                    Ok(parked) if state.phase != Phase::Closing => {
                        state.birth = started.elapsed();
                        state.shelves[cpu as usize].parked.push_back(parked);
                        state
                    }
                    Ok(parked) => {
                        // Release the lock first: ending a worker takes time.
                        drop(state);
                        drop(parked);
                        return;
                    }
                    Err(_) => wait(pool, state, Some(Instant::now() + PAUSE)),
                }
            }
            Ok(Task::End(surplus)) => {
                drop(state);
                drop(surplus);
                lock(&pool.state)
            }
            Err(until) => wait(pool, state, until),
        };
    }
}

fn wait<'p>(
    pool: &'p Pool,
    state: MutexGuard<'p, State>,
    until: Option<Instant>,
) -> MutexGuard<'p, State> {
    let left = until.map(|until| until.saturating_duration_since(Instant::now()));
    pool.changed.wait(state, left.unwrap_or(Duration::MAX))
}

impl Inner {
    /// Makes a worker now, with or without standard input.
    pub(super) fn park(
        &self,
        cpu: CpuBudgetScope,
        stdin: Option<OwnedFd>,
    ) -> Result<Parked, SupervisorError> {
        self.park_of(&self.zygote()?, cpu, stdin)
    }

    /// Makes a worker of the given zygote.
    pub(super) fn park_of(
        &self,
        zygote: &Arc<Zygote>,
        cpu: CpuBudgetScope,
        stdin: Option<OwnedFd>,
    ) -> Result<Parked, SupervisorError> {
        let zygote = Arc::clone(zygote);
        let stdin = stdin.map_or_else(nothing_to_read, Ok)?;
        match VerifiedWorker::new(&self.run_context(&zygote), stdin, cpu) {
            Ok(verified) => Ok(Parked { verified, zygote }),
            Err(error) => {
                if error.discredits_zygote() {
                    self.zygotes.discard(&zygote);
                }
                Err(error)
            }
        }
    }
}
