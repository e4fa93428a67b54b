//! Sessions: one caller, one live worker at a time.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use super::pool::Parked;
use super::stats::{Activity, CountedCaller};
use super::{Inner, Sandbox};
use crate::error::Error;
use crate::outcome::{Enforced, PolicyIdentity, Unit};
use crate::policy::LimitName;
use crate::protocol::VERSION;
use crate::protocol::caller::{ClientEvent, ClientRequest, Opened, Python, ToolTime};
use crate::supervisor::error::While;
use crate::supervisor::{
    AskHost, Caller, CallerEvent, Payload, Refusal, RunContext, SessionExit, SessionTerms,
    SupervisorError, attend, await_caller, wait,
};
use sandfork_jail::control::CpuBudgetScope;

/// How long a caller may take to read its last event.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What a caller specifies when it opens a session.
#[derive(Debug, Default)]
pub struct SessionRequest {
    /// The guest's standard input; empty if `None`.
    pub stdin: Option<OwnedFd>,
    /// How much of the time that host tools run is excluded from the cell's time.
    pub tool_time: ToolTime,
    /// Whether the host is asked which of the paths that the guest was not shown it has.
    pub ask_host: AskHost,
}

/// What follows a worker.
enum Next {
    /// Another worker, for the request with this id.
    Worker(u64),
    End,
}

impl Sandbox {
    /// Serves sessions to a caller, one worker after another, until the caller closes the session
    /// or disconnects.
    ///
    /// Blocks the calling thread. `docs/protocol.md` describes the events, from
    /// [`ClientEvent::Opened`] on.
    ///
    /// # Errors
    ///
    /// When no worker could be provided. The caller has received the error.
    pub(crate) fn attend(
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
                Ok(SessionExit::Restart { id }) => {
                    restart = Some(id);
                    continue;
                }
                Ok(SessionExit::Ended(why)) => why,
                Err(error) => {
                    self.inner.counts.refuse(error.kind());
                    caller.refuse(restart, error.into());
                    "no worker could be made".to_owned()
                }
            };
            match serve_ended(caller, &why)? {
                Next::Worker(id) => restart = Some(id),
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
        let (parked, refill) = match &stdin {
            // A worker that is ready has no standard input.
            None => self.filler.take(&self.inner, CpuBudgetScope::Cell),
            Some(_) => (None, None),
        };
        let stood_ready = parked.is_some();
        let Parked { verified, zygote } = match parked {
            Some(parked) => parked,
            None => self.inner.stand(stdin)?,
        };
        let terms = SessionTerms {
            idle: self.inner.plan.supervision.session_idle,
            age: self.inner.plan.supervision.session_age,
            cpu_rule: self.inner.plan.supervision.cpu_rule,
            tool_time: request.tool_time,
        };
        let opened = self.opened(restart.take(), &verified.enforced);
        caller.answer(ClientEvent::Opened(Box::new(opened)), Payload::default());
        // Refills only after the caller can go on. If too few workers were ready, that is soon
        // enough.
        let refill = refill.filter(|_| stood_ready);
        let context = RunContext {
            ask_host: request.ask_host,
            ..self.inner.place(&zygote)
        };
        let left = attend(&verified, &context, terms, caller, refill);
        if !zygote.is_alive() {
            self.inner.warm.discard(&zygote);
        }
        Ok(left?)
    }

    fn opened(&self, restart: Option<u64>, enforced: &Enforced) -> Opened {
        Opened {
            id: restart,
            version: VERSION,
            enforced: enforced.clone(),
            policy: self.policy().clone(),
            python: self.python(),
            limits: self.limits_by_key(),
        }
    }

    pub(crate) fn policy(&self) -> &PolicyIdentity {
        &self.inner.policy
    }

    /// The guests' interpreter.
    pub(crate) fn python(&self) -> Python {
        let interpreter = &self.inner.plan.interpreter;
        let (major, minor, micro) = interpreter.version;
        Python {
            executable: interpreter.executable.display().to_string(),
            version: format!("{major}.{minor}.{micro}"),
            environment: interpreter.environment.display().to_string(),
        }
    }

    /// The limits by their policy keys, in seconds, bytes or counts.
    pub(crate) fn limits_by_key(&self) -> BTreeMap<&'static str, f64> {
        let limits = &self.inner.plan.supervision.limits;
        let number = |name: LimitName| {
            #[allow(clippy::cast_precision_loss)] // what is that large may be off by a byte
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
    /// Makes a ready worker now. If the zygote was ended from outside, the session only starts
    /// later.
    fn stand(&self, stdin: Option<OwnedFd>) -> Result<Parked, SupervisorError> {
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

/// Serves the caller of a session that has ended, until it requests another worker or disconnects.
fn serve_ended(caller: &mut dyn Caller, why: &str) -> Result<Next, Error> {
    loop {
        match await_caller(caller).when("wait for the caller")? {
            CallerEvent::Request(ClientRequest::Restart { id }, _) => {
                return Ok(Next::Worker(id));
            }
            CallerEvent::Request(ClientRequest::Close, _) => {
                return finish(caller).map(|()| Next::End);
            }
            CallerEvent::Request(ask, _) => {
                // An answer or an interrupt that comes too late is dropped.
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

/// Reports that the session is closed, and waits until the caller can read that.
fn finish(caller: &mut dyn Caller) -> Result<(), Error> {
    caller.answer(ClientEvent::Closed, Payload::default());
    let until = Instant::now() + LAST_WORDS;
    while caller.unsent() > 0 && Instant::now() < until {
        let room = caller.as_fd().map(|fd| (fd, PollFlags::POLLOUT));
        wait([room], Some(until)).when("wait for the caller")?;
        caller.flush();
    }
    Ok(())
}
