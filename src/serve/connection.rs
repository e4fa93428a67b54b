//! One connection: from its first message to its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::batch;
use super::program;
use super::sandboxes::{Sandboxes, Wanted, require_absolute};
use super::watch;
use crate::protocol::VERSION;
use crate::protocol::caller::{
    ClientEvent, ClientRequest, Open, OpenBatch, StartProgram, WatchRequest,
};
use crate::sandbox::{Sandbox, SessionRequest};
use crate::supervisor::{
    AskHost, Caller, CallerEvent, FrameCaller, Image, Payload, Refusal, await_caller,
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
            let first = match first {
                First::Program(wanted) if wanted.version == VERSION => {
                    return program::serve(caller, self.sandboxes.programs(), *wanted);
                }
                First::Watch(wanted) if wanted.version == VERSION => {
                    return watch::serve(caller, self.sandboxes.programs(), &wanted);
                }
                First::Attach { session, pid } => {
                    return program::attach(caller, self.sandboxes.programs(), session, pid);
                }
                first => first,
            };
            let version = first.version();
            if version != VERSION {
                let ours = format!(
                    "this supervisor speaks version {VERSION} of the protocol, not {version}"
                );
                caller.refuse(None, Refusal::Protocol(ours));
                continue;
            }
            let Some(wanted) = first.wanted() else {
                continue;
            };
            match self.sandboxes.get(&wanted) {
                Ok((sandbox, policy)) => {
                    return match first {
                        First::Program(_) | First::Watch(_) | First::Attach { .. } => {}
                        First::Session(open, payload) => {
                            let from = match beginning(&sandbox, &open) {
                                Ok(from) => from,
                                Err(refusal) => {
                                    caller.refuse(None, refusal);
                                    continue;
                                }
                            };
                            let programs = match sandbox.programs() {
                                Ok(programs) => programs,
                                Err(error) => {
                                    caller.refuse(None, error.into());
                                    continue;
                                }
                            };
                            let listed = self.sandboxes.programs().list(programs.clone());
                            let request = SessionRequest {
                                programs: Some(programs.queue()),
                                number: Some(listed.number()),
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

/// The state with which a session begins, if it is not a new one.
fn beginning(sandbox: &Sandbox, open: &Open) -> Result<Option<Arc<Image>>, Refusal> {
    match (open.snapshot, &open.saved) {
        (Some(number), None) => {
            let image = sandbox
                .snapshot(number)
                .ok_or(Refusal::NoSnapshot(number))?;
            Ok(Some(image))
        }
        (None, Some(path)) => {
            require_absolute(path)?;
            Ok(Some(sandbox.saved(path)?))
        }
        (None, None) => Ok(None),
        (Some(_), Some(_)) => {
            let both = "a session begins with one snapshot, not with two";
            Err(Refusal::Protocol(both.into()))
        }
    }
}

/// The purpose of a connection.
enum First {
    Session(Box<Open>, Payload),
    Batch(Box<OpenBatch>),
    Program(Box<StartProgram>),
    Watch(WatchRequest),
    Attach { session: u64, pid: i32 },
}

impl First {
    fn version(&self) -> u32 {
        match self {
            Self::Session(open, _) => open.version,
            Self::Batch(open) => open.version,
            Self::Program(wanted) => wanted.version,
            Self::Watch(wanted) => wanted.version,
            Self::Attach { .. } => VERSION,
        }
    }

    /// The sandbox that it needs. A program and a watch have that of their session.
    fn wanted(&self) -> Option<Wanted<'_>> {
        match self {
            Self::Session(open, _) => Some(open.as_ref().into()),
            Self::Batch(open) => Some(open.as_ref().into()),
            Self::Program(_) | Self::Watch(_) | Self::Attach { .. } => None,
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
            CallerEvent::Request(ClientRequest::Program(wanted), _) => {
                return Some(First::Program(wanted));
            }
            CallerEvent::Request(ClientRequest::Watch(wanted), _) => {
                return Some(First::Watch(wanted));
            }
            CallerEvent::Request(ClientRequest::Attach { session, pid }, _) => {
                return Some(First::Attach { session, pid });
            }
            CallerEvent::Request(ClientRequest::Programs { session }, _) => {
                match sandboxes.programs().running(session) {
                    Ok(running) => caller.answer(running, Payload::default()),
                    Err(refusal) => caller.refuse(None, refusal),
                }
            }
            // The session that made it may be over.
            CallerEvent::Request(ClientRequest::Discard { snapshot }, _) => {
                sandboxes.discard_snapshot(snapshot);
                caller.answer(ClientEvent::Closed, Payload::default());
            }
            CallerEvent::Request(ClientRequest::Save { snapshot, path }, _) => {
                match sandboxes.save_snapshot(snapshot, &path) {
                    Ok(bytes) => caller.answer(ClientEvent::Saved { bytes }, Payload::default()),
                    Err(refusal) => caller.refuse(None, refusal),
                }
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
