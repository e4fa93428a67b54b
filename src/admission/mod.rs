//! Limits how many runs are active, queues a bounded number and rejects the rest: back-pressure for a server that
//! receives more requests than its host can run.

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
/// A run that finds the queue full is rejected with an error of kind [`Busy`](crate::ErrorKind::Busy). The queue admits
/// runs round-robin between [clients](crate::Request::client), and each client's runs in order. No client can fill the
/// queue for the others: when it is full, a client with fewer queued runs displaces the latest run of the client with
/// the most, and the displaced run is rejected.
///
/// With a queue as long as the number of active runs, an admitted run has waited about as long as one run takes. Clones
/// share one state, so several sandboxes can share one admission.
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
    /// Queued runs.
    waiting: usize,
}

/// A permit to run. Dropping it admits the next run.
#[derive(Debug)]
pub struct Permit(Arc<Inner>);

#[derive(Debug, Default)]
struct State {
    load: Load,
    /// The clients with queued runs, in the order of their turns.
    turns: VecDeque<Client>,
    /// The queued runs of each client, oldest first. No entry is empty.
    queues: HashMap<Client, VecDeque<Arc<Ticket>>>,
}

type Client = Arc<str>;

/// The result of a request for admission.
enum Entry {
    Admitted,
    Queued(Arc<Ticket>),
}

/// A queued run. Its fate is set under the lock, and then signalled.
#[derive(Debug)]
struct Ticket {
    fate: Mutex<Fate>,
    signal: EventFd,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Fate {
    Open,
    Admitted,
    Displaced,
}

impl Admission {
    /// Creates an admission of `in_flight` active runs, and a queue for `queue` more.
    ///
    /// [`Capacity`](crate::Capacity) computes how many runs the host can hold.
    pub fn new(in_flight: NonZeroUsize, queue: usize) -> Self {
        Self(Arc::new(Inner {
            in_flight: in_flight.get(),
            queue,
            state: Mutex::default(),
        }))
    }

    /// Returns the current numbers of active and queued runs.
    #[cfg(test)]
    fn load(&self) -> Load {
        lock(&self.0.state).load
    }

    /// Waits for a permit, blocking the calling thread, and calls `act` while holding it. A sandbox with this admission
    /// does so for its runs; use this method for other work, such as the cells of sessions.
    ///
    /// # Errors
    ///
    /// Of kind [`Busy`](crate::ErrorKind::Busy), if the queue is full, another client displaced this request, or the
    /// wait was cancelled. `act` is not called then.
    pub fn admit<T>(
        &self,
        client: &Arc<str>,
        cancel: Option<&Cancel>,
        act: impl FnOnce() -> T,
    ) -> Result<T, Error> {
        let _permit = self.enter(client, cancel)?;
        Ok(act())
    }

    /// Waits for a permit.
    ///
    /// # Errors
    ///
    /// As [`admit`](Self::admit).
    pub(crate) fn enter(&self, client: &Client, cancel: Option<&Cancel>) -> Result<Permit, Error> {
        match self.0.enqueue(client)? {
            Entry::Admitted => Ok(Permit(Arc::clone(&self.0))),
            Entry::Queued(ticket) => self.wait(client, &ticket, cancel),
        }
    }

    fn wait(
        &self,
        client: &Client,
        ticket: &Arc<Ticket>,
        cancel: Option<&Cancel>,
    ) -> Result<Permit, Error> {
        let waited = ticket.wait(cancel);
        // The fate is set under this lock, so it does not change from here on.
        let mut state = lock(&self.0.state);
        let fate = ticket.fate();
        if fate == Fate::Open {
            state.leave(client, ticket);
        }
        drop(state);
        match fate {
            // Even if the wait was cancelled at the same time: the run then sees the cancellation.
            Fate::Admitted => Ok(Permit(Arc::clone(&self.0))),
            Fate::Displaced => Err(busy(
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
    fn enqueue(&self, client: &Client) -> Result<Entry, Error> {
        let mut state = lock(&self.state);
        if state.load.running < self.in_flight {
            state.load.running += 1;
            return Ok(Entry::Admitted);
        }
        let displaced = self.find_slot(&state, client)?;
        let ticket = Arc::new(Ticket::new()?);
        if let Some(other) = displaced {
            state.displace(&other);
        }
        state.push(client, Arc::clone(&ticket));
        Ok(Entry::Queued(ticket))
    }

    /// Ends an admitted run, and admits the next.
    fn release(&self) {
        let mut state = lock(&self.state);
        state.load.running -= 1;
        state.admit_next();
    }

    /// Finds room in the queue for a run of `client`: a free slot (`None`), or the slot of another client's latest run.
    fn find_slot(&self, state: &State, client: &Client) -> Result<Option<Client>, Error> {
        if state.load.waiting < self.queue {
            return Ok(None);
        }
        let waiting = |client: &Client| state.queues.get(client).map_or(0, VecDeque::len);
        let longest = state.turns.iter().max_by_key(|client| waiting(client));
        match longest {
            Some(other) if waiting(other) > waiting(client) + 1 => Ok(Some(Arc::clone(other))),
            _ => Err(busy(format!(
                "busy: {} runs are active and {} are waiting, which is the limit: try again later",
                self.in_flight, self.queue
            ))),
        }
    }
}

impl State {
    fn push(&mut self, client: &Client, ticket: Arc<Ticket>) {
        let queue_of_client = self.queues.entry(Arc::clone(client)).or_default();
        if queue_of_client.is_empty() {
            self.turns.push_back(Arc::clone(client));
        }
        queue_of_client.push_back(ticket);
        self.load.waiting += 1;
    }

    /// Admits the next client in turn.
    fn admit_next(&mut self) {
        let Some(client) = self.turns.pop_front() else {
            return;
        };
        let Some(queue_of_client) = self.queues.get_mut(&client) else {
            return;
        };
        if let Some(ticket) = queue_of_client.pop_front() {
            self.load.waiting -= 1;
            self.load.running += 1;
            ticket.decide(Fate::Admitted);
        }
        if queue_of_client.is_empty() {
            self.queues.remove(&client);
        } else {
            self.turns.push_back(client);
        }
    }

    /// Rejects the latest run of a client.
    fn displace(&mut self, client: &Client) {
        if let Some(ticket) = self.queues.get_mut(client).and_then(VecDeque::pop_back) {
            ticket.decide(Fate::Displaced);
            self.remove_from_counts(client);
        }
    }

    /// Removes a run that stopped waiting.
    fn leave(&mut self, client: &Client, ticket: &Arc<Ticket>) {
        if let Some(queue_of_client) = self.queues.get_mut(client) {
            queue_of_client.retain(|other| !Arc::ptr_eq(other, ticket));
            self.remove_from_counts(client);
        }
    }

    /// Removes one queued run of a client from the counts.
    fn remove_from_counts(&mut self, client: &Client) {
        self.load.waiting -= 1;
        if self.queues.get(client).is_some_and(VecDeque::is_empty) {
            self.queues.remove(client);
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
            signal: EventFd::from_flags(flags).when("create an eventfd for a queued run")?,
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

    /// Waits until the fate is set or the run is cancelled.
    fn wait(&self, cancel: Option<&Cancel>) -> Result<(), SupervisorError> {
        let sources = [
            Some((self.signal.as_fd(), PollFlags::POLLIN)),
            cancel.map(|cancel| (cancel.as_fd(), PollFlags::POLLIN)),
        ];
        // A signal interrupts the wait before any descriptor is ready.
        while wait(sources, None)
            .when("wait for a turn")?
            .iter()
            .all(PollFlags::is_empty)
        {}
        Ok(())
    }
}

/// Returns the error for a run that was not admitted.
fn busy(sentence: impl Into<String>) -> Error {
    Error::new(ErrorKind::Busy, sentence)
}

#[cfg(test)]
mod tests;
