//! Serves the callers of paused sessions, and resumes those sessions.

use std::ops::ControlFlow;

use super::Sandbox;
use super::serve_session::Ready;
use super::stats::Activity;
use crate::error::Error;
use crate::protocol::caller::{ClientEvent, ClientRequest, Presence};
use crate::supervisor::error::While;
use crate::supervisor::{
    Beginning, CLOSED, Caller, Closed, Paused, Payload, Queue, Refusal, SessionExit, SessionTerms,
    Use,
};

/// A session's next worker, and how the session continues in it.
pub struct Turn<'a> {
    /// The worker.
    pub ready: Ready<'a>,
    /// The event for the caller, if it is not the event that the session is opened.
    pub event: Option<ClientEvent>,
    /// The first request for the worker.
    pub first: Option<(ClientRequest, Payload)>,
}

impl<'a> Turn<'a> {
    /// Continues with an opened session.
    pub fn of(ready: Ready<'a>) -> Self {
        Self {
            ready,
            event: None,
            first: None,
        }
    }
}

impl Sandbox {
    /// Serves the caller of a paused session until the session is used or has ended. Sets `restart` to the number of
    /// the request that another worker answers.
    pub(super) fn pause(
        &self,
        caller: &mut dyn Caller,
        paused: &Paused,
        terms: SessionTerms,
        queue: Option<&Queue>,
        restart: &mut Option<u64>,
    ) -> Result<ControlFlow<SessionExit, Turn<'_>>, Error> {
        let _paused = self.inner.counts.begin(Activity::Paused);
        let state = |session| ClientEvent::State { session };
        caller.answer(state(Presence::Paused), Payload::default());
        if let Some(id) = paused.request_id {
            caller.answer(ClientEvent::Accepted { id }, Payload::default());
        }
        let mut unanswered = None;
        let exit = loop {
            let first = match paused
                .await_use(caller, queue)
                .when("wait for the caller")?
            {
                Use::Gone => break SessionExit::Gone,
                Use::Over(why) => break SessionExit::Ended(why.to_owned()),
                Use::Caller(ClientRequest::Close, _) => break SessionExit::Closed,
                Use::Caller(ClientRequest::Restart { id }, _) => break SessionExit::Restart(id),
                Use::Caller(ClientRequest::Rollback { id, snapshot }, _) => {
                    match self.rolled_back(snapshot, terms) {
                        Ok(ready) => {
                            *restart = Some(id);
                            return Ok(ControlFlow::Continue(Turn::of(ready)));
                        }
                        Err(refusal) => caller.refuse(Some(id), refusal),
                    }
                    continue;
                }
                Use::Caller(request, payload) => Some((request, payload)),
                Use::ProgramOrWatch => None,
            };
            let id = first.as_ref().and_then(|(request, _)| request.id());
            match self.restored(&paused.image, None, terms) {
                Ok((parked, _, refill)) => {
                    *restart = id;
                    let beginning = Beginning::Resumed(paused.record.clone());
                    return Ok(ControlFlow::Continue(Turn {
                        ready: (parked, beginning, refill),
                        event: Some(state(Presence::Live)),
                        first,
                    }));
                }
                // Only workers of the snapshot's zygote have its address layout.
                Err(_) if !paused.image.zygote.is_alive() => {
                    unanswered = id;
                    let why = "the interpreter from which it was forked ended while it was paused";
                    break SessionExit::Ended(why.to_owned());
                }
                Err(error) => match (first, queue) {
                    (Some(_), _) => caller.refuse(id, error.into()),
                    (None, Some(queue)) => {
                        queue.refuse(&format!("it could not be resumed after a pause: {error}"));
                    }
                    (None, None) => {}
                },
            }
        };
        if let Some(queue) = queue {
            queue.close(&match &exit {
                SessionExit::Ended(why) => Closed::Ended(why.clone()),
                SessionExit::Restart(_) => Closed::Restarted,
                _ => Closed::Ended(CLOSED.to_owned()),
            });
        }
        if let SessionExit::Ended(why) = &exit {
            caller.answer(state(Presence::Ended), Payload::default());
            if unanswered.is_some() {
                caller.refuse(unanswered, Refusal::Ended(why.clone()));
            }
        }
        Ok(ControlFlow::Break(exit))
    }
}
