//! Workers that stand ready before anyone asks: the fork, the jail and the look from outside are over
//! when a run or a session begins.
//!
//! A parked worker is as fresh as any other: no guest code has run in it. As many are parked as
//! [`Demand`] says, by a thread of the sandbox's own, and none before the first was wanted.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::demand::Demand;
use super::{Inner, nothing_to_read};
use crate::jail::control::CpuSpan;
use crate::protocol::message::Serves;
use crate::supervisor::{Later, Standing, SupervisorError, Zygote};

/// How long the thread waits after a worker could not be made. Whoever wants one is told why.
const PAUSE: Duration = Duration::from_secs(1);

/// What a worker is parked for. Each kind has its shelf.
const KINDS: [CpuSpan; 2] = [CpuSpan::Life, CpuSpan::Cell];

/// A worker that stands ready, and the zygote that must outlive it.
#[derive(Debug)]
pub struct Parked {
    // Dropped first.
    pub standing: Standing,
    pub zygote: Arc<Zygote>,
}

/// The parked workers of a sandbox.
#[derive(Debug)]
pub struct Pool {
    state: Mutex<State>,
    /// Told when one was taken, and at the end.
    changed: Condvar,
    most: usize,
}

#[derive(Debug, Default)]
struct State {
    shelves: [Shelf; KINDS.len()],
    phase: Phase,
    /// How long making one takes.
    birth: Duration,
}

#[derive(Debug, Default)]
struct Shelf {
    parked: VecDeque<Parked>,
    demand: Demand,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
enum Phase {
    /// Nobody has wanted a worker yet.
    #[default]
    Idle,
    /// The thread is there.
    Filling,
    /// The sandbox is being dropped.
    Closing,
}

impl Pool {
    /// At most `most` of each kind.
    pub fn new(most: usize) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            most,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A worker that stands ready, if there is one; in any case another is wanted, of which the thread
    /// is told later.
    fn take(&self, cpu: CpuSpan) -> Option<Parked> {
        let mut state = self.lock();
        let wanted = &mut state.shelves[place(cpu)];
        wanted.demand.note(Instant::now());
        let mut dead = Vec::new();
        // The one that has stood longest, so that none stands much longer than the others.
        let taken = loop {
            match wanted.parked.pop_front() {
                Some(parked) if parked.standing.worker.has_ended() => dead.push(parked),
                other => break other,
            }
        };
        // Ending those that have died takes its time.
        drop(state);
        taken
    }

    /// What to do next, with the lock held; `None` when there is nothing until somebody wants a
    /// worker, or `until`.
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
    Park(CpuSpan),
    End(Vec<Parked>),
}

fn serves(cpu: CpuSpan) -> Serves {
    match cpu {
        CpuSpan::Life => Serves::OneRun,
        CpuSpan::Cell => Serves::Session,
    }
}

fn place(cpu: CpuSpan) -> usize {
    KINDS.iter().position(|kind| *kind == cpu).unwrap_or(0)
}

/// The thread that fills a pool. Dropping it ends the thread and the workers that stand ready.
#[derive(Debug, Default)]
pub struct Filler(Mutex<Option<JoinHandle<()>>>);

impl Filler {
    /// A worker that stands ready, if there is one, and what has the pool filled up again: making another
    /// takes a processor for as long as a small run takes. From the first call on there will be one.
    pub fn take<'p>(
        &self,
        inner: &'p Arc<Inner>,
        cpu: CpuSpan,
    ) -> (Option<Parked>, Option<Later<'p>>) {
        if inner.pool.most == 0 {
            return (None, None);
        }
        if inner.pool.lock().phase == Phase::Idle {
            self.start(inner);
        }
        let changed = &inner.pool.changed;
        let refill = Later::new(Instant::now(), || changed.notify_one());
        (inner.pool.take(cpu), Some(refill))
    }

    fn start(&self, inner: &Arc<Inner>) {
        let mut thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = inner.pool.lock();
        if state.phase != Phase::Idle {
            return;
        }
        let filled = Arc::clone(inner);
        let builder = thread::Builder::new().name("pool".into());
        // Without a thread to spare every worker is made when it is wanted.
        if let Ok(started) = builder.spawn(move || fill(&filled)) {
            *thread = Some(started);
            state.phase = Phase::Filling;
        }
    }

    /// Ends the thread, and the workers that stand ready.
    pub fn close(&self, inner: &Inner) {
        let mut state = inner.pool.lock();
        state.phase = Phase::Closing;
        let parked: Vec<Parked> = state
            .shelves
            .iter_mut()
            .flat_map(|shelf| shelf.parked.drain(..))
            .collect();
        drop(state);
        inner.pool.changed.notify_one();
        drop(parked);
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // One that panicked has said so.
            _ = thread.join();
        }
    }
}

/// Parks workers until the sandbox is dropped.
fn fill(inner: &Inner) {
    let pool = &inner.pool;
    let mut state = pool.lock();
    while state.phase != Phase::Closing {
        state = match Pool::next_task(&mut state, pool.most) {
            Ok(Task::Park(cpu)) => {
                drop(state);
                let started = Instant::now();
                let made = inner.park(cpu, None).and_then(|parked| {
                    parked.standing.rehearse(serves(cpu))?;
                    Ok(parked)
                });
                let mut state = pool.lock();
                match made {
                    Ok(parked) if state.phase != Phase::Closing => {
                        state.birth = started.elapsed();
                        state.shelves[place(cpu)].parked.push_back(parked);
                        state
                    }
                    Ok(parked) => {
                        // Not under the lock: ending a worker takes its time.
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
                pool.lock()
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
    let Some(until) = until else {
        return pool
            .changed
            .wait(state)
            .unwrap_or_else(PoisonError::into_inner);
    };
    let left = until.saturating_duration_since(Instant::now());
    let waited = pool.changed.wait_timeout(state, left);
    waited.unwrap_or_else(PoisonError::into_inner).0
}

impl Inner {
    /// A worker that stands, made now, with something to read or nothing.
    pub(super) fn park(
        &self,
        cpu: CpuSpan,
        stdin: Option<OwnedFd>,
    ) -> Result<Parked, SupervisorError> {
        let zygote = self.zygote()?;
        let stdin = stdin.map_or_else(nothing_to_read, Ok)?;
        match Standing::new(&self.place(&zygote), stdin, cpu) {
            Ok(standing) => Ok(Parked { standing, zygote }),
            Err(error) => {
                if error.discredits_zygote() {
                    self.warm.discard(&zygote);
                }
                Err(error)
            }
        }
    }
}
