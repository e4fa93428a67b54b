//! Serves sessions: each has one caller and one live worker at a time.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use super::pause::Turn;
use super::pool::{Former, Parked};
use super::stats::{Activity, CountedCaller};
use super::{Inner, Sandbox};
use crate::error::Error;
use crate::outcome::{Enforced, PolicyIdentity, Unit};
use crate::policy::LimitName;
use crate::protocol::VERSION;
use crate::protocol::caller::{ClientEvent, ClientRequest, Opened, Python, ToolTime};
use crate::supervisor::error::While;
use crate::supervisor::{
    AskHost, Beginning, Caller, CallerEvent, Closed, Deferred, Image, Paused, Payload, Programs,
    Purpose, Queue, Refusal, RunContext, SessionExit, SessionTerms, Shelf, SnapshotRefusal,
    SupervisorError, WorkerLoop, await_caller, clock, drain,
};
use sandfork_jail::control::CpuBudgetScope;

/// How long to wait for a caller to read its last event.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// The settings with which a caller opens a session.
#[derive(Debug, Default)]
pub struct SessionRequest {
    /// The guest's standard input; empty if `None`.
    pub stdin: Option<OwnedFd>,
    /// The snapshot from which the session starts.
    pub from: Option<Arc<Image>>,
    /// How much of the time that host tools run is excluded from the cell's time.
    pub tool_time: ToolTime,
    /// Whether to check if a path that the guest cannot see exists on the host.
    pub ask_host: AskHost,
    /// The session's number, kept over restarts; assigned when the session starts.
    pub session: Option<u64>,
    /// The queue of requests for programs.
    pub programs: Option<Arc<Queue>>,
    /// The number by which other processes refer to the session's programs.
    pub number: Option<u64>,
}

/// A worker, how its session begins, and a guard that refills the pool.
pub type Ready<'a> = (Parked, Beginning, Option<Deferred<'a>>);

/// How a session continues without its current worker.
enum Handover<'a> {
    /// In this worker, for the rollback request with this number.
    RolledBack(Box<Ready<'a>>, u64),
    Paused(Box<Paused>),
}

/// How to continue after a session has ended.
enum Next {
    /// With another worker, for the request with this number, restored from a snapshot if one is given.
    Worker(u64, Option<Arc<Image>>),
    End,
}

impl Sandbox {
    /// Serves a caller's session, one worker after another, until the caller closes the session or disconnects.
    ///
    /// Blocks the calling thread. `docs/protocol.md` describes the events, from [`ClientEvent::Opened`] on.
    ///
    /// # Errors
    ///
    /// If no worker could be provided. The caller has received the error.
    pub(crate) fn serve_session(
        &self,
        caller: &mut dyn Caller,
        request: SessionRequest,
    ) -> Result<(), Error> {
        let _session = self.inner.counts.begin(Activity::Session);
        let caller = &mut CountedCaller::new(caller, &self.inner.counts);
        let mut request = request;
        let mut restart = None;
        loop {
            let why = match self.attempt_session(caller, &mut restart, &mut request) {
                Ok(SessionExit::Gone) => return Ok(()),
                Ok(SessionExit::Closed) => return finish(caller),
                Ok(SessionExit::Restart(id)) => {
                    restart = Some(id);
                    continue;
                }
                Ok(SessionExit::Ended(why)) => why,
                // `attempt_session` handles both itself.
                Ok(SessionExit::Rollback { .. } | SessionExit::Paused(_)) => continue,
                Err(error) => {
                    self.inner.counts.refuse(error.kind());
                    caller.refuse(restart, error.into());
                    let why = "no worker could be made".to_owned();
                    if let Some(queue) = &request.programs {
                        queue.close(&Closed::Ended(why.clone()));
                    }
                    why
                }
            };
            match self.serve_ended(caller, &why)? {
                Next::Worker(id, from) => {
                    restart = Some(id);
                    request.from = from;
                }
                Next::End => return Ok(()),
            }
        }
    }

    fn attempt_session(
        &self,
        caller: &mut dyn Caller,
        restart: &mut Option<u64>,
        request: &mut SessionRequest,
    ) -> Result<SessionExit, Error> {
        let stdin = request.stdin.take();
        let session = *request.session.get_or_insert_with(Shelf::session);
        let terms = self.terms(request.tool_time);
        let purpose = Purpose::Session(terms);
        let mut cells = request.from.as_ref().map(|image| image.cells());
        let ready = match request.from.take() {
            Some(image) => self.restored(&image, stdin, terms)?,
            None => self.fresh(stdin)?,
        };
        let (mut turn, mut former) = (Turn::of(ready), Former::default());
        loop {
            let (parked, beginning, mut refill) = turn.ready;
            let context = RunContext {
                ask_host: request.ask_host,
                session,
                ..self.inner.run_context(&parked.zygote)
            };
            let served = WorkerLoop::new(&context, &parked.verified, purpose, beginning)?;
            let mut served = served.with_programs(request.programs.clone());
            let id = restart.take();
            let event = turn.event.unwrap_or_else(|| {
                ClientEvent::Opened(Box::new(Opened {
                    session: request.number,
                    cells: cells.take(),
                    ..self.opened(id, &parked.verified.enforced)
                }))
            });
            caller.answer(event, Payload::default());
            let handover = loop {
                let exit = served.serve(caller, turn.first.take(), refill.take());
                if !parked.zygote.is_alive() {
                    self.inner.zygotes.discard(&parked.zygote);
                }
                match exit? {
                    SessionExit::Rollback { id, snapshot } => {
                        match self.rolled_back(snapshot, terms) {
                            Ok(ready) => break Handover::RolledBack(Box::new(ready), id),
                            Err(refusal) => caller.refuse(Some(id), refusal),
                        }
                    }
                    SessionExit::Paused(paused) => match self.try_restore(&paused.image, terms) {
                        Ok(()) => {
                            served.note_paused(&paused);
                            break Handover::Paused(paused);
                        }
                        Err(error) if paused.request_id.is_some() => {
                            caller.refuse(paused.request_id, error.into());
                        }
                        Err(error) => tracing::debug!(%error, "a session is not paused"),
                    },
                    exit => return Ok(exit),
                }
            };
            // Another worker or a file has the session's state now, so this worker ends.
            drop(served);
            turn = match handover {
                Handover::RolledBack(ready, id) => {
                    former.end(parked);
                    *restart = Some(id);
                    Turn::of(*ready)
                }
                Handover::Paused(paused) => {
                    drop(parked);
                    let queue = request.programs.as_deref();
                    match self.pause(caller, &paused, terms, queue, restart)? {
                        ControlFlow::Continue(turn) => turn,
                        ControlFlow::Break(exit) => return Ok(exit),
                    }
                }
            };
        }
    }

    pub(super) fn terms(&self, tool_time: ToolTime) -> SessionTerms {
        let supervision = &self.inner.plan.supervision;
        SessionTerms {
            idle: supervision.session_idle,
            age: supervision.session_age,
            pause_after: supervision.session_pause_after,
            cpu_rule: supervision.cpu_rule,
            tool_time,
        }
    }

    /// Makes a worker for a new session.
    fn fresh(&self, stdin: Option<OwnedFd>) -> Result<Ready<'_>, Error> {
        let (parked, refill) = match &stdin {
            // A parked worker has no standard input.
            None => self.filler.take(&self.inner, CpuBudgetScope::Cell),
            Some(_) => (None, None),
        };
        let was_parked = parked.is_some();
        let parked = match parked {
            Some(parked) => parked,
            None => self.inner.make_parked(stdin)?,
        };
        // Refill only after the caller can continue. If the pool was empty, `refill` is dropped, so the pool refills
        // now.
        Ok((parked, Beginning::Fresh, refill.filter(|_| was_parked)))
    }

    /// Makes a worker and restores it from a snapshot.
    pub(super) fn restored(
        &self,
        image: &Arc<Image>,
        stdin: Option<OwnedFd>,
        terms: SessionTerms,
    ) -> Result<Ready<'_>, Error> {
        let (parked, refill) = self.take_worker_of(image, stdin)?;
        let context = self.inner.run_context(&parked.zygote);
        let state = Beginning::State(Arc::clone(image));
        WorkerLoop::new(&context, &parked.verified, Purpose::Session(terms), state)?.restore()?;
        Ok((parked, Beginning::Restored(Arc::clone(image)), refill))
    }

    /// Checks that a worker could be restored from a snapshot.
    pub(super) fn try_restore(&self, image: &Arc<Image>, terms: SessionTerms) -> Result<(), Error> {
        let (parked, _refill) = self.take_worker_of(image, None)?;
        let context = self.inner.run_context(&parked.zygote);
        let trial = Beginning::Trial(Arc::clone(image));
        WorkerLoop::new(&context, &parked.verified, Purpose::Session(terms), trial)?.try_restore()
    }

    /// Takes or makes a worker of the snapshot's zygote: only its workers have the same address layout.
    fn take_worker_of(
        &self,
        image: &Image,
        stdin: Option<OwnedFd>,
    ) -> Result<(Parked, Option<Deferred<'_>>), Error> {
        let (parked, refill) = match &stdin {
            None => self.filler.take(&self.inner, CpuBudgetScope::Cell),
            Some(_) => (None, None),
        };
        let parked = parked.filter(|parked| Arc::ptr_eq(&parked.zygote, &image.zygote));
        let parked = match parked {
            Some(parked) => parked,
            None => self.inner.make_worker_of(image, stdin)?,
        };
        Ok((parked, refill))
    }

    pub(super) fn rolled_back(
        &self,
        snapshot: u64,
        terms: SessionTerms,
    ) -> Result<Ready<'_>, Refusal> {
        let image = self.snapshots().get(snapshot);
        let image = image.ok_or(Refusal::NoSnapshot(snapshot))?;
        Ok(self.restored(&image, None, terms)?)
    }

    /// Serves the caller of an ended session, until the caller requests another worker or disconnects.
    fn serve_ended(&self, caller: &mut dyn Caller, why: &str) -> Result<Next, Error> {
        loop {
            match await_caller(caller).when("wait for the caller")? {
                CallerEvent::Request(ClientRequest::Restart { id }, _) => {
                    return Ok(Next::Worker(id, None));
                }
                CallerEvent::Request(ClientRequest::Rollback { id, snapshot }, _) => {
                    match self.snapshots().get(snapshot) {
                        Some(image) => return Ok(Next::Worker(id, Some(image))),
                        None => caller.refuse(Some(id), Refusal::NoSnapshot(snapshot)),
                    }
                }
                CallerEvent::Request(ClientRequest::Close, _) => {
                    return finish(caller).map(|()| Next::End);
                }
                CallerEvent::Request(ask, _) => {
                    // A late return value or interrupt is dropped.
                    if ask.id().is_some() {
                        caller.refuse(ask.id(), Refusal::Ended(why.to_owned()));
                    }
                }
                CallerEvent::Gone => return Ok(Next::End),
                CallerEvent::Malformed(how) => {
                    caller.refuse(None, Refusal::Protocol(how));
                    return Ok(Next::End);
                }
                CallerEvent::Nothing => {}
            }
        }
    }

    /// Returns a handle on the programs of a new session.
    pub(crate) fn programs(&self) -> Result<Programs, Error> {
        let limits = &self.inner.plan.supervision.limits;
        Ok(Programs::new(limits.output())?)
    }

    fn opened(&self, restart: Option<u64>, enforced: &Enforced) -> Opened {
        Opened {
            id: restart,
            version: VERSION,
            session: None,
            cells: None,
            enforced: enforced.clone(),
            policy: self.policy().clone(),
            can_install: self.package_addition().is_some(),
            python: self.python(),
            limits: self.limits_by_key(),
        }
    }

    pub(crate) fn policy(&self) -> &PolicyIdentity {
        &self.inner.policy
    }

    /// Returns the guests' interpreter.
    pub(crate) fn python(&self) -> Python {
        let interpreter = &self.inner.plan.interpreter;
        let (major, minor, micro) = interpreter.version;
        Python {
            executable: interpreter.executable.display().to_string(),
            version: format!("{major}.{minor}.{micro}"),
            environment: interpreter.environment.display().to_string(),
        }
    }

    /// Returns the limits by policy key, in seconds, bytes or counts.
    pub(crate) fn limits_by_key(&self) -> BTreeMap<&'static str, f64> {
        let limits = &self.inner.plan.supervision.limits;
        let number = |name: LimitName| {
            #[allow(clippy::cast_precision_loss)] // a limit above 2^53 may be off by one
            let amount = limits.amount(name) as f64;
            match name.spec().unit {
                Unit::Duration | Unit::Cores => amount / 1000.0,
                Unit::Size | Unit::Count => amount,
            }
        };
        let limits = LimitName::ALL.into_iter();
        limits.map(|name| (name.key(), number(name))).collect()
    }
}

impl Inner {
    /// Makes a worker of the snapshot's zygote.
    fn make_worker_of(
        &self,
        image: &Image,
        stdin: Option<OwnedFd>,
    ) -> Result<Parked, SupervisorError> {
        let made = self.park_of(&image.zygote, CpuBudgetScope::Cell, stdin);
        made.map_err(|error| match error {
            SupervisorError::ZygoteGone => SnapshotRefusal::Other(
                "the interpreter from which its session was forked has ended; take another"
                    .to_owned(),
            )
            .into(),
            other => other,
        })
    }

    /// Makes a worker now. Retries once with a new zygote if the current one was killed from outside.
    fn make_parked(&self, stdin: Option<OwnedFd>) -> Result<Parked, SupervisorError> {
        let again = stdin.as_ref().map(OwnedFd::try_clone).transpose();
        match self.park(CpuBudgetScope::Cell, stdin) {
            Err(SupervisorError::ZygoteGone) => self.park(
                CpuBudgetScope::Cell,
                again.when("copy the input's descriptor")?,
            ),
            other => other,
        }
    }
}

/// Reports that the session is closed, and waits until the caller can have read that.
fn finish(caller: &mut dyn Caller) -> Result<(), Error> {
    caller.answer(ClientEvent::Closed, Payload::default());
    let until = clock::now() + CLOSE_TIMEOUT;
    Ok(drain(caller, Some(until)).when("wait for the caller")?)
}
