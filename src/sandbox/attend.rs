//! Sessions: one caller, one live worker at a time.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;

use super::pool::Parked;
use super::{Inner, Sandbox};
use crate::error::{Error, ErrorKind};
use crate::jail::control::CpuSpan;
use crate::outcome::{Enforced, PolicyIdentity};
use crate::policy::LimitName;
use crate::protocol::VERSION;
use crate::protocol::caller::{Answer, Ask, ErrorWord, Opened, Python, ToolTime};
use crate::supervisor::error::While;
use crate::supervisor::{
    Caller, Hearing, Left, Payload, SessionTerms, SupervisorError, attend, await_caller, ended,
    refuse, wait,
};

/// How long a caller that has its last answer may take to read it.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// What a caller says about a session when it opens one.
#[derive(Debug, Default)]
pub struct SessionRequest {
    /// What the guest reads; nothing without it.
    pub stdin: Option<OwnedFd>,
    /// Whether the time in which a host tool runs counts as the cell's.
    pub tool_time: ToolTime,
}

/// What comes after a worker.
enum Next {
    Worker,
    End,
}

impl Sandbox {
    /// Serves sessions to a caller, one worker after another, until it closes or is gone.
    ///
    /// Blocks the calling thread. The answers, from [`Answer::Opened`] on, are those of
    /// `docs/protocol.md`.
    ///
    /// # Errors
    ///
    /// When no worker could be provided. The caller has been told.
    pub fn attend(&self, caller: &mut dyn Caller, request: SessionRequest) -> Result<(), Error> {
        let mut stdin = request.stdin;
        loop {
            let why = match self.attempt_session(caller, stdin.take(), request.tool_time) {
                Ok(Left::Gone) => return Ok(()),
                Ok(Left::Closed) => return finish(caller),
                Ok(Left::Restart { .. }) => continue,
                Ok(Left::Ended(why)) => why,
                Err(error) => {
                    refuse(caller, None, word(&error), error.to_string());
                    "no worker could be made".to_owned()
                }
            };
            match mourn(caller, &why)? {
                Next::Worker => {}
                Next::End => return Ok(()),
            }
        }
    }

    fn attempt_session(
        &self,
        caller: &mut dyn Caller,
        stdin: Option<OwnedFd>,
        tool_time: ToolTime,
    ) -> Result<Left, Error> {
        let (parked, refill) = match &stdin {
            // A worker that stands ready has nothing to read.
            None => self.filler.take(&self.inner, CpuSpan::Cell),
            Some(_) => (None, None),
        };
        let stood_ready = parked.is_some();
        let Parked { standing, zygote } = match parked {
            Some(parked) => parked,
            None => self.inner.stand(stdin)?,
        };
        let terms = SessionTerms {
            idle: self.inner.plan.supervision.session_idle,
            age: self.inner.plan.supervision.session_age,
            tool_time,
        };
        let opened = self.opened(&standing.enforced);
        caller.answer(Answer::Opened(Box::new(opened)), Payload::default());
        // Not before the caller can go on; where too few stood ready, that is enough.
        let refill = refill.filter(|_| stood_ready);
        let left = attend(&standing, &self.inner.place(&zygote), terms, caller, refill);
        if !zygote.is_alive() {
            self.inner.warm.discard(&zygote);
        }
        Ok(left?)
    }

    fn opened(&self, enforced: &Enforced) -> Opened {
        Opened {
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

    /// Limits by their keys in the policy: seconds, bytes, counts.
    pub(crate) fn limits_by_key(&self) -> BTreeMap<&'static str, f64> {
        let limits = self.inner.limits();
        #[allow(clippy::cast_precision_loss)] // what is that large may be off by a byte
        BTreeMap::from([
            (LimitName::Wall.key(), limits.wall.as_secs_f64()),
            (LimitName::Cpu.key(), limits.cpu.as_secs_f64()),
            (LimitName::Memory.key(), limits.memory as f64),
            (LimitName::Pids.key(), f64::from(limits.pids)),
            (LimitName::Output.key(), limits.output as f64),
        ])
    }
}

impl Inner {
    /// A worker that stands, made now. A zygote that was ended from outside costs time, not the session.
    fn stand(&self, stdin: Option<OwnedFd>) -> Result<Parked, SupervisorError> {
        let again = stdin.as_ref().map(OwnedFd::try_clone).transpose();
        match self.park(CpuSpan::Cell, stdin) {
            Err(SupervisorError::ZygoteGone) => {
                self.park(CpuSpan::Cell, again.when("copy the input's descriptor")?)
            }
            other => other,
        }
    }
}

/// Answers the caller of a session that has ended, until it wants another worker or nothing more.
fn mourn(caller: &mut dyn Caller, why: &str) -> Result<Next, Error> {
    loop {
        match await_caller(caller).when("wait for the caller")? {
            Hearing::Ask(Ask::Restart { .. }, _) => return Ok(Next::Worker),
            Hearing::Ask(Ask::Close, _) => return finish(caller).map(|()| Next::End),
            Hearing::Ask(ask, _) => {
                // An answer or an interrupt that comes too late is nobody's.
                if ask.id().is_some() {
                    refuse(caller, ask.id(), ErrorWord::SessionEnded, ended(why));
                }
            }
            Hearing::Gone => return Ok(Next::End),
            Hearing::Garbled(how) => {
                refuse(caller, None, ErrorWord::Protocol, how);
                return Ok(Next::End);
            }
            Hearing::Nothing => {}
        }
    }
}

/// Says that the session is closed, and sees to it that the caller can read it.
fn finish(caller: &mut dyn Caller) -> Result<(), Error> {
    caller.answer(Answer::Closed, Payload::default());
    let until = Instant::now() + LAST_WORDS;
    while caller.unsent() > 0 && Instant::now() < until {
        wait([Some((caller.as_fd(), PollFlags::POLLOUT))], Some(until))
            .when("wait for the caller")?;
        caller.flush();
    }
    Ok(())
}

/// The kind of an error, in the word that a caller gets.
pub fn word(error: &Error) -> ErrorWord {
    match error.kind() {
        ErrorKind::Policy => ErrorWord::Policy,
        ErrorKind::Host => ErrorWord::Host,
        ErrorKind::Interpreter => ErrorWord::Interpreter,
        ErrorKind::NotEnforced => ErrorWord::NotEnforced,
        ErrorKind::Request => ErrorWord::Request,
        ErrorKind::Busy => ErrorWord::Busy,
        ErrorKind::SessionEnded => ErrorWord::SessionEnded,
        ErrorKind::System => ErrorWord::System,
    }
}
