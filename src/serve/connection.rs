//! One connection: from its first message to its end.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::PollFlags;
use nix::sys::socket::SockType;

use super::batch;
use super::sandboxes::{Sandboxes, Wanted};
use crate::protocol::caller::{Ask, ErrorWord, Open, OpenBatch, PolicyChoice, ToolTime};
use crate::protocol::{Frame, FrameLimits, VERSION};
use crate::sandbox::{SessionRequest, word};
use crate::supervisor::{FrameCaller, Hearing, Payload, await_caller, refuse, socket_pair, wait};

/// A connection on which nothing is said for so long stands by: its caller has opened another one.
const STANDS_BY: Duration = Duration::from_millis(2);

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
        let Ok(mut caller) = FrameCaller::new(Arc::clone(&self.socket)) else {
            return;
        };
        // What cannot be rehearsed takes longer.
        _ = self.rehearse();
        while let Some(first) = first_message(&mut caller) {
            let version = first.version();
            if version != VERSION {
                let ours = format!(
                    "this supervisor speaks version {VERSION} of the protocol, not {version}"
                );
                refuse(&mut caller, None, ErrorWord::Protocol, ours);
                continue;
            }
            match self.sandboxes.get(&first.wanted()) {
                Ok((sandbox, policy)) => {
                    return match first {
                        First::Session(open, payload) => {
                            let request = SessionRequest {
                                stdin: payload.passed,
                                tool_time: open.tool_time,
                            };
                            // The caller has been told of an error.
                            _ = sandbox.attend(&mut caller, request);
                        }
                        First::Batch(open) => {
                            batch::serve(caller, &self.socket, sandbox, &policy, &open);
                        }
                    };
                }
                Err(error) => refuse(&mut caller, None, word(&error), error.to_string()),
            }
        }
    }
}

impl Connection {
    /// On a connection that stands by, goes the way of a first message until it would come to a sandbox: what a
    /// thread does for the first time takes several times as long, for the memory that it touches.
    fn rehearse(&self) -> Result<(), Errno> {
        let until = Instant::now() + STANDS_BY;
        let [said] = wait(
            [Some((self.socket.as_fd(), PollFlags::POLLIN))],
            Some(until),
        )?;
        if !said.is_empty() {
            return Ok(());
        }
        let (said, heard) = socket_pair(SockType::Stream)?;
        if let Some(usual) = usual_message() {
            nix::unistd::write(&said, &usual)?;
        }
        drop(said);
        if let Some(first) = first_message(&mut FrameCaller::new(Arc::new(heard))?) {
            self.sandboxes.rehearse(&first.wanted());
        }
        Ok(())
    }
}

/// How most sessions are opened.
fn usual_message() -> Option<Vec<u8>> {
    let open = Open {
        version: VERSION,
        policy: PolicyChoice::Name {
            name: "standard".to_owned(),
            directory: None,
        },
        set: Vec::new(),
        environ: BTreeMap::new(),
        tool_time: ToolTime::default(),
        stdin: false,
    };
    let frame = Frame {
        header: serde_json::to_vec(&Ask::Open(Box::new(open))).ok()?,
        payload: Vec::new(),
    };
    let mut bytes = Vec::new();
    let limits = FrameLimits::FROM_CALLER;
    frame.encode_into(&limits, &mut bytes).ok()?;
    Some(bytes)
}

/// What a connection is for.
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

/// Waits for the message that says what the connection is for; `None` when there will be none.
fn first_message(caller: &mut FrameCaller) -> Option<First> {
    loop {
        match await_caller(caller).ok()? {
            Hearing::Ask(Ask::Open(open), payload) => return Some(First::Session(open, payload)),
            Hearing::Ask(Ask::Map(open), _) => return Some(First::Batch(open)),
            Hearing::Ask(ask, _) => {
                let first = "the first message of a connection opens its session or batch".into();
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
