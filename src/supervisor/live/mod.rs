//! The life of a worker from its first message to its end: a session, which runs cell after cell for
//! one caller, or a run, which is a session of one cell.
//!
//! One thread serves a worker (`attend`, `serve_run`). It receives from the caller, feeds
//! the worker, drains its output and watches it, during cells and between them, because a guest's
//! threads and processes outlive the cell that started them. Nothing here waits for the guest, or
//! for a caller that does not read.

mod adaptive_poll;
mod caller;
mod calls;
mod cell;
mod clocks;
mod copying;
mod files;
mod finish;
mod life;
mod one_run;
mod pausing;
mod questions;
mod refusal;
mod requests;
mod state;
mod worker_io;
mod worker_loop;
mod worker_says;

use std::sync::Arc;
use std::time::Duration;

pub use self::caller::{
    Caller, CallerEvent, FrameCaller, PIECE, Payload, await_caller, awaited, drain,
};
pub use self::pausing::{Paused, Use};
pub use self::refusal::Refusal;
pub use self::state::Beginning;

pub(crate) use self::worker_loop::{BACKLOG, WorkerLoop};

pub(super) use self::life::LifeTerms;
pub(super) use self::one_run::{OneRun, serve_run};

use self::life::WorkerLife;
use super::clock;
use super::ending::Kind;
use super::error::SupervisorError;
use super::programs::{Closed, Queue};
use super::run::Deferred;
use crate::error::Error;
use crate::outcome::CpuRule;
use crate::protocol::caller::{ClientRequest, ToolTime};
use crate::waiters::lock;

/// What a worker is used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Purpose {
    /// One run. A limit ends the worker at once.
    Run(Kind),
    /// A session. A limit interrupts the cell first.
    Session(SessionTerms),
}

/// The terms of a session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SessionTerms {
    /// How long it may wait for its next cell.
    pub idle: Option<Duration>,
    /// How long it may live.
    pub age: Option<Duration>,
    /// How long it is unused before it is paused.
    pub pause_after: Option<Duration>,
    /// What the limit on processor time is of a cell that has a wall time of its own.
    pub cpu_rule: CpuRule,
    /// How much of the time that host tools run is excluded from the cell's time.
    pub tool_time: ToolTime,
}

/// Why the session loop stopped.
#[derive(Debug)]
pub enum SessionExit {
    /// The caller asked for its end.
    Closed,
    /// The caller disconnected.
    Gone,
    /// The caller asked for another worker. Holds the request's id.
    Restart(u64),
    /// The caller asked for the session's state to be replaced.
    Rollback {
        /// The request's id.
        id: u64,
        /// The snapshot's number.
        snapshot: u64,
    },
    /// The session was not used, and is paused.
    Paused(Box<Paused>),
    /// The worker ended. Holds the reason, as part of a sentence.
    Ended(String),
}

/// The loop of a session's worker.
impl WorkerLoop<'_> {
    /// Runs the programs that are asked for in this queue, too.
    pub fn with_programs(mut self, queue: Option<Arc<Queue>>) -> Self {
        if let Some(queue) = queue {
            self.state.io.serve_programs(queue);
        }
        self
    }

    /// Waits until the worker, which is not used, has shown that it could take on a state: it has its files and
    /// descriptors, and there are steps to its memory.
    ///
    /// # Errors
    ///
    /// When it could not.
    pub fn try_out(mut self) -> Result<(), Error> {
        self.until_restored(WorkerLife::is_tried)
    }

    /// Waits until the worker has taken on its state. It is served by another loop then.
    ///
    /// # Errors
    ///
    /// When it could not. Nothing of it is kept.
    pub fn restore(mut self) -> Result<(), Error> {
        self.until_restored(WorkerLife::is_restoring)?;
        // The worker's ways to the hosts of the policy and to programs go to the next loop that serves it.
        let io = self.state.io;
        let verified = io.verified;
        *lock(&verified.network) = io.network;
        *lock(&verified.summons) = io.summons;
        Ok(())
    }

    /// Ends what watches the directories of the worker, whose state is another's from now on, if its caller asked for that.
    pub fn note_paused(&mut self, paused: &Paused) {
        let programs = self.state.io.programs.as_mut();
        if let Some(programs) = programs.filter(|_| paused.asked.is_some()) {
            programs.end_watches("its session was paused");
        }
    }

    /// Serves until the worker or the caller is gone, the caller wants another worker, or the session is paused.
    /// `first` is a request that was received before. `later` runs after the first cell.
    ///
    /// # Errors
    ///
    /// As [`run`](super::run()). If the worker was lost during a cell, the caller of this function
    /// informs the session's caller.
    pub fn attend(
        &mut self,
        caller: &mut dyn Caller,
        first: Option<(ClientRequest, Payload)>,
        later: Option<Deferred>,
    ) -> Result<SessionExit, SupervisorError> {
        // It was to be paused, and could not.
        if let Some(programs) = &mut self.state.io.programs {
            programs.go_on();
        }
        let handle = |(ask, payload)| self.state.handle(ask, payload, clock::now(), caller);
        if let Some(exit) = first.and_then(handle) {
            return Ok(exit);
        }
        let left = self.until_gone(caller, later)?;
        let left = match left {
            Some(left) => {
                self.state.on_leaving(caller);
                left
            }
            None => self.state.on_end(clock::now(), caller),
        };
        self.state.tell_of_time_between_cells(caller);
        let closed = match &left {
            SessionExit::Ended(why) => Some(Closed::Ended(why.clone())),
            SessionExit::Restart(_) | SessionExit::Rollback { .. } => Some(Closed::Anew),
            SessionExit::Closed | SessionExit::Gone | SessionExit::Paused(_) => None,
        };
        if let (Some(closed), Some(programs)) = (closed, &mut self.state.io.programs) {
            programs.closed = closed;
        }
        Ok(left)
    }
}
