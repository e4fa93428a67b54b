//! One connection: from its first message to its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::batch;
use super::sandboxes::{Sandboxes, Wanted};
use crate::protocol::VERSION;
use crate::protocol::caller::{ClientEvent, ClientRequest, Open, OpenBatch};
use crate::sandbox::SessionRequest;
use crate::supervisor::{
    AskHost, Caller, CallerEvent, FrameCaller, Payload, Refusal, await_caller,
};

/// A connection that this process received.
pub struct Connection {
    socket: Arc<OwnedFd>,
    sandboxes: Arc<Sandboxes>,
}

impl Connection {
    /// A connection over this socket.
    pub fn new(socket: Arc<OwnedFd>, sandboxes: Arc<Sandboxes>) -> Self {
        Self { socket, sandboxes }
    }

    /// Serves it until its other end is closed.
    pub fn serve(self) {
        // A socket that cannot be used is closed, which the other end notices.
        let Ok(mut caller) = FrameCaller::new(Arc::clone(&self.socket)) else {
            return;
        };
        while let Some(first) = first_message(&mut caller, &self.sandboxes) {
            let version = first.version();
            if version != VERSION {
                let ours = format!(
                    "this supervisor speaks version {VERSION} of the protocol, not {version}"
                );
                caller.refuse(None, Refusal::Protocol(ours));
                continue;
            }
            match self.sandboxes.get(&first.wanted()) {
                Ok((sandbox, policy)) => {
                    return match first {
                        First::Session(open, payload) => {
                            let from = open.snapshot.map(|number| {
                                sandbox.snapshot(number).ok_or(Refusal::NoSnapshot(number))
                            });
                            let from = match from.transpose() {
                                Ok(from) => from,
                                Err(refusal) => {
                                    caller.refuse(None, refusal);
                                    continue;
                                }
                            };
                            let request = SessionRequest {
                                stdin: payload.passed,
                                from,
                                session: None,
                                tool_time: open.tool_time,
                                ask_host: if open.ask_host {
                                    AskHost::Yes
                                } else {
                                    AskHost::No
                                },
                            };
                            // The caller has received any error.
                            _ = sandbox.attend(&mut caller, request);
                        }
                        First::Batch(open) => {
                            batch::serve(caller, &self.socket, sandbox, &policy, &open);
                        }
                    };
                }
                Err(error) => caller.refuse(None, error.into()),
            }
        }
    }
}

/// The purpose of a connection.
enum First {
    Session(Box<Open>, Payload),
    Batch(Box<OpenBatch>),
}

impl First {
    fn version(&self) -> u32 {
        match self {
            Self::Session(open, _) => open.version,
            Self::Batch(open) => open.version,
        }
    }

    fn wanted(&self) -> Wanted<'_> {
        match self {
            Self::Session(open, _) => open.as_ref().into(),
            Self::Batch(open) => open.as_ref().into(),
        }
    }
}

/// Waits for the message that states the connection's purpose. `None` if none will come.
fn first_message(caller: &mut FrameCaller, sandboxes: &Sandboxes) -> Option<First> {
    loop {
        match await_caller(caller).ok()? {
            CallerEvent::Request(ClientRequest::Open(open), payload) => {
                return Some(First::Session(open, payload));
            }
            CallerEvent::Request(ClientRequest::Map(open), _) => {
                return Some(First::Batch(open));
            }
            // The session that made it may be over.
            CallerEvent::Request(ClientRequest::Discard { snapshot }, _) => {
                sandboxes.discard_snapshot(snapshot);
                caller.answer(ClientEvent::Closed, Payload::default());
            }
            CallerEvent::Request(ask, _) => {
                let first = "the first message of a connection opens its session or batch".into();
                caller.refuse(ask.id(), Refusal::Protocol(first));
            }
            CallerEvent::Gone => return None,
            CallerEvent::Malformed(how) => {
                caller.refuse(None, Refusal::Protocol(how));
                return None;
            }
            CallerEvent::Nothing => {}
        }
    }
}
