//! Limits how many runs are active, queues some of the others and refuses the rest: back-pressure for a
//! server that receives more requests than its host can run.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroUsize;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use nix::poll::PollFlags;
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::error::{Error, ErrorKind};
use crate::supervisor::error::While;
use crate::supervisor::{Cancel, SupervisorError, wait};
use crate::waiters::lock;

/// Admits a bounded number of runs at once, with a bounded queue.
///
/// A run that finds the queue full is refused with an error of kind [`Busy`](crate::ErrorKind::Busy). The
/// queue admits runs in turns between [clients](crate::Request::client), and each client's runs in their
/// order. No client can fill the queue for the others: when it is full, a client with fewer runs in it takes
/// the place of the latest run of the client with the most, and that run is refused.
///
/// With a queue as long as the number of active runs, an admitted run has waited about as long as one run
/// takes. Clones share one state, so that several sandboxes may share one admission.
///
/// ```no_run
/// use std::num::NonZeroUsize;
/// use sandfork::{Admission, ErrorKind, Request, Sandbox};
///
/// let admission = Admission::new(NonZeroUsize::new(4).expect("four is not zero"), 4);
/// let sandbox = Sandbox::builder().admission(&admission).build()?;
/// match sandbox.run(Request::python("print(1)").client("tenant 7")) {
///     Err(error) if error.kind() == ErrorKind::Busy => println!("503, try again later"),
///     ended => println!("{}", ended?.stdout()),
/// }
/// # Ok::<(), sandfork::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Admission(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    in_flight: usize,
    queue: usize,
    state: Mutex<State>,
}

/// The current numbers of runs.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Load {
    /// Active runs.
    running: usize,
    /// Runs in the queue.
    waiting: usize,
}

/// The right to run, until it is dropped.
#[derive(Debug)]
pub struct Permit(Arc<Inner>);

#[derive(Debug, Default)]
struct State {
    load: Load,
    /// The clients with runs in the queue; the next turn comes first.
    turns: VecDeque<Client>,
    /// The waiting runs of each client, the oldest first. None is empty.
    lines: HashMap<Client, VecDeque<Arc<Ticket>>>,
}

type Client = Arc<str>;

/// The answer to a request for admission.
enum Asked {
    Admitted,
    Waits(Arc<Ticket>),
}

/// A waiting run. Its fate is set under the lock, and then signalled.
#[derive(Debug)]
struct Ticket {
    fate: Mutex<Fate>,
    signal: EventFd,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Open,
    Admitted,
    PushedOut,
}

impl Admission {
    /// An admission of `in_flight` active runs and a queue of `queue` more.
    ///
    /// [`Capacity`](crate::Capacity) computes how many the host can hold.
    pub fn new(in_flight: NonZeroUsize, queue: usize) -> Self {
        Self(Arc::new(Inner {
            in_flight: in_flight.get(),
            queue,
            state: Mutex::default(),
        }))
    }

    /// The current numbers of active and waiting runs.
    #[cfg(test)]
    fn load(&self) -> Load {
        lock(&self.0.state).load
    }

    /// Does something when its turn has come, and blocks the calling thread until then. A sandbox with this admission
    /// does so with its runs; this is for what it does not see as one, such as the cells of sessions.
    ///
    /// # Errors
    ///
    /// Of kind [`Busy`](crate::ErrorKind::Busy), when the queue has no place, lost the one it gave, or the wait is
    /// cancelled. Nothing is done then.
    pub fn admit<T>(
        &self,
        client: &Arc<str>,
        cancel: Option<&Cancel>,
        act: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        let _permit = self.enter(client, cancel)?;
        Ok(act())
    }

    /// Waits for the right to run.
    ///
    /// # Errors
    ///
    /// As [`admit`](Self::admit).
    pub(crate) fn enter(&self, client: &Client, cancel: Option<&Cancel>) -> Result<Permit, Error> {
        match self.0.ask(client)? {
            Asked::Admitted => Ok(Permit(Arc::clone(&self.0))),
            Asked::Waits(ticket) => self.wait(client, &ticket, cancel),
        }
    }

    fn wait(
        &self,
        client: &Client,
        ticket: &Arc<Ticket>,
        cancel: Option<&Cancel>,
    ) -> Result<Permit, Error> {
        let waited = ticket.wait(cancel);
        // The fate is decided under this lock, and does not change from here on.
        let mut state = lock(&self.0.state);
        let fate = ticket.fate();
        if fate == Fate::Open {
            state.leave(client, ticket);
        }
        drop(state);
        match fate {
            // Also if it was cancelled at the same time: then the run itself is cancelled.
            Fate::Admitted => Ok(Permit(Arc::clone(&self.0))),
            Fate::PushedOut => Err(busy(
                "busy: the queue is full, and this client has the most runs in it: try again later",
            )),
            Fate::Open => {
                waited?;
                Err(busy("the run was cancelled while it waited for its turn"))
            }
        }
    }
}

impl Inner {
    fn ask(&self, client: &Client) -> Result<Asked, Error> {
        let mut state = lock(&self.state);
        if state.load.running < self.in_flight {
            state.load.running += 1;
            return Ok(Asked::Admitted);
        }
        let pushed_out = self.place(&state, client)?;
        let ticket = Arc::new(Ticket::new()?);
        if let Some(other) = pushed_out {
            state.push_out(&other);
        }
        state.line_up(client, Arc::clone(&ticket));
        Ok(Asked::Waits(ticket))
    }

    /// Ends an admitted run.
    fn release(&self) {
        let mut state = lock(&self.state);
        state.load.running -= 1;
        state.admit_next();
    }

    /// Finds a place in the queue for a run of `client`: a free one (`None`), or that of the latest run of
    /// another client.
    fn place(&self, state: &State, client: &Client) -> Result<Option<Client>, Error> {
        if state.load.waiting < self.queue {
            return Ok(None);
        }
        let waiting = |client: &Client| state.lines.get(client).map_or(0, VecDeque::len);
        let longest = state.turns.iter().max_by_key(|client| waiting(client));
        match longest {
            Some(other) if waiting(other) > waiting(client) + 1 => Ok(Some(Arc::clone(other))),
            _ => Err(busy(format!(
                "busy: {} runs are active and {} wait, the most that are allowed: try again later",
                self.in_flight, self.queue
            ))),
        }
    }
}

impl State {
    fn line_up(&mut self, client: &Client, ticket: Arc<Ticket>) {
        let line = self.lines.entry(Arc::clone(client)).or_default();
        if line.is_empty() {
            self.turns.push_back(Arc::clone(client));
        }
        line.push_back(ticket);
        self.load.waiting += 1;
    }

    /// Gives a free place to the next client in turn.
    fn admit_next(&mut self) {
        let Some(client) = self.turns.pop_front() else {
            return;
        };
        let Some(line) = self.lines.get_mut(&client) else {
            return;
        };
        if let Some(ticket) = line.pop_front() {
            self.load.waiting -= 1;
            self.load.running += 1;
            ticket.decide(Fate::Admitted);
        }
        if line.is_empty() {
            self.lines.remove(&client);
        } else {
            self.turns.push_back(client);
        }
    }

    /// Refuses the latest run of a client.
    fn push_out(&mut self, client: &Client) {
        if let Some(ticket) = self.lines.get_mut(client).and_then(VecDeque::pop_back) {
            ticket.decide(Fate::PushedOut);
            self.left(client);
        }
    }

    /// Removes a run that stopped waiting.
    fn leave(&mut self, client: &Client, ticket: &Arc<Ticket>) {
        if let Some(line) = self.lines.get_mut(client) {
            line.retain(|other| !Arc::ptr_eq(other, ticket));
            self.left(client);
        }
    }

    /// Counts one waiting run of a client less.
    fn left(&mut self, client: &Client) {
        self.load.waiting -= 1;
        if self.lines.get(client).is_some_and(VecDeque::is_empty) {
            self.lines.remove(client);
            self.turns.retain(|other| other != client);
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Ticket {
    fn new() -> Result<Self, SupervisorError> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        Ok(Self {
            fate: Mutex::new(Fate::Open),
            signal: EventFd::from_flags(flags).when("make a place to wait")?,
        })
    }

    fn fate(&self) -> Fate {
        *lock(&self.fate)
    }

    fn decide(&self, fate: Fate) {
        *lock(&self.fate) = fate;
        // Fails only after 2^64 writes.
        _ = self.signal.write(1);
    }

    /// Waits until the fate is set, or the run is cancelled.
    fn wait(&self, cancel: Option<&Cancel>) -> Result<(), SupervisorError> {
        let sources = [
            Some((self.signal.as_fd(), PollFlags::POLLIN)),
            cancel.map(|cancel| (cancel.as_fd(), PollFlags::POLLIN)),
        ];
        // A signal ends the wait before anything is ready.
        while wait(sources, None)
            .when("wait for a turn")?
            .iter()
            .all(PollFlags::is_empty)
        {}
        Ok(())
    }
}

/// Why a run was not admitted. It did not start.
fn busy(sentence: impl Into<String>) -> Error {
    Error::new(ErrorKind::Busy, sentence)
}

#[cfg(test)]
mod tests;
