//! One connection: from its first message to its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::sandboxes::Sandboxes;
use crate::protocol::VERSION;
use crate::protocol::caller::{Ask, ErrorWord, Open};
use crate::sandbox::{SessionRequest, word};
use crate::supervisor::{FrameCaller, Hearing, Payload, await_caller, refuse};

/// A connection that was handed over.
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
        // A socket that cannot be used is closed, which its other end sees.
        let Ok(mut caller) = FrameCaller::new(self.socket) else {
            return;
        };
        while let Some((open, payload)) = first_message(&mut caller) {
            if open.version != VERSION {
                let ours = format!(
                    "this supervisor speaks version {VERSION} of the protocol, not {}",
                    open.version
                );
                refuse(&mut caller, None, ErrorWord::Protocol, ours);
                continue;
            }
            let request = SessionRequest {
                stdin: payload.passed,
                tool_time: open.tool_time,
            };
            match self.sandboxes.get(&open) {
                Ok(sandbox) => {
                    // The caller has been told of an error.
                    _ = sandbox.attend(&mut caller, request);
                    return;
                }
                Err(error) => refuse(&mut caller, None, word(&error), error.to_string()),
            }
        }
    }
}

/// Waits for the message that opens a session; `None` when there will be none.
fn first_message(caller: &mut FrameCaller) -> Option<(Box<Open>, Payload)> {
    loop {
        match await_caller(caller).ok()? {
            Hearing::Ask(Ask::Open(open), payload) => return Some((open, payload)),
            Hearing::Ask(ask, _) => {
                let first = "the first message of a connection opens its session".into();
                refuse(caller, ask.id(), ErrorWord::Protocol, first);
            }
            Hearing::Gone => return None,
            Hearing::Garbled(how) => {
                refuse(caller, None, ErrorWord::Protocol, how);
                return None;
            }
            Hearing::Nothing => {}
        }
    }
}
