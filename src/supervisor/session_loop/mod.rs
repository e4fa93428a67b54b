//! Serves a worker from its first message to its end. A session runs cell after cell for one caller; a run is a session
//! of one cell.
//!
//! One thread serves a worker (`serve`, `serve_run`). It receives from the caller, feeds the worker, drains its output
//! and enforces its limits, both during cells and between them, because threads and processes of the guest outlive the
//! cell that started them. Nothing here blocks on the guest, or on a caller that does not read.

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
mod worker_messages;

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

/// The time limits of a session, and its rules for CPU time and tool time.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SessionTerms {
    /// How long the session may wait for its next cell.
    pub idle: Option<Duration>,
    /// The longest lifetime of the session.
    pub age: Option<Duration>,
    /// The period of disuse after which the session is paused.
    pub pause_after: Option<Duration>,
    /// The rule for the CPU limit of a cell that sets its own wall time.
    pub cpu_rule: CpuRule,
    /// How much of the time of host tools does not count towards the cell's wall time.
    pub tool_time: ToolTime,
}

/// Why the session loop stopped.
#[derive(Debug)]
pub enum SessionExit {
    /// The caller closed the session.
    Closed,
    /// The caller disconnected.
    Gone,
    /// The caller requested a restart with a new worker. Holds the request's id.
    Restart(u64),
    /// The caller requested a rollback to a snapshot.
    Rollback {
        /// The request's id.
        id: u64,
        /// The snapshot's number.
        snapshot: u64,
    },
    /// The session was paused, because it was unused or because the caller requested it.
    Paused(Box<Paused>),
    /// The worker ended. Holds the reason, as part of a sentence.
    Ended(String),
}

/// The entry points for sessions.
impl WorkerLoop<'_> {
    /// Also serves the programs that callers request through this queue.
    pub fn with_programs(mut self, queue: Option<Arc<Queue>>) -> Self {
        if let Some(queue) = queue {
            self.state.io.serve_programs(queue);
        }
        self
    }

    /// Waits until an idle worker has proved that the image can be restored into it: its files and descriptors are in
    /// place, and a plan to replace its memory exists.
    ///
    /// # Errors
    ///
    /// When the image cannot be restored.
    pub fn try_restore(mut self) -> Result<(), Error> {
        self.until_restored(WorkerLife::is_on_trial)
    }

    /// Waits until the image is restored into the worker. Another loop serves the worker afterwards.
    ///
    /// # Errors
    ///
    /// When the restore fails. The worker cannot be used then.
    pub fn restore(mut self) -> Result<(), Error> {
        self.until_restored(WorkerLife::is_restoring)?;
        // Hand the network and program channels to the loop that serves this worker next.
        let io = self.state.io;
        let verified = io.verified;
        *lock(&verified.network) = io.network;
        *lock(&verified.starter_socket) = io.starter_socket;
        Ok(())
    }

    /// Stops the directory watches of a paused worker, because its state now belongs to the next worker. Applies only
    /// if the caller requested the pause.
    pub fn note_paused(&mut self, paused: &Paused) {
        let programs = self.state.io.programs.as_mut();
        if let Some(programs) = programs.filter(|_| paused.request_id.is_some()) {
            programs.end_watches("its session was paused");
        }
    }

    /// Serves until the worker or the caller is gone, the caller requests another worker, or the session is paused.
    /// `first` is a request that was received earlier. `later` is work that is deferred until the first cell is over,
    /// or until it is due.
    ///
    /// # Errors
    ///
    /// As for [`run`](super::run()). If the worker was lost during a cell, the function that called `serve` reports it
    /// to the session's caller.
    pub fn serve(
        &mut self,
        caller: &mut dyn Caller,
        first: Option<(ClientRequest, Payload)>,
        later: Option<Deferred>,
    ) -> Result<SessionExit, SupervisorError> {
        // An attempt to pause the session may have failed since the last call.
        if let Some(programs) = &mut self.state.io.programs {
            programs.go_on();
        }
        let handle = |(request, payload)| self.state.handle(request, payload, clock::now(), caller);
        if let Some(exit) = first.and_then(handle) {
            return Ok(exit);
        }
        let exit = match self.until_gone(caller, later)? {
            Some(exit) => {
                self.state.on_leaving(caller);
                exit
            }
            None => self.state.on_end(clock::now(), caller),
        };
        self.state.report_time_between_cells(caller);
        let closed = match &exit {
            SessionExit::Ended(why) => Some(Closed::Ended(why.clone())),
            SessionExit::Restart(_) | SessionExit::Rollback { .. } => Some(Closed::Restarted),
            SessionExit::Closed | SessionExit::Gone | SessionExit::Paused(_) => None,
        };
        if let (Some(closed), Some(programs)) = (closed, &mut self.state.io.programs) {
            programs.closed = closed;
        }
        Ok(exit)
    }
}
