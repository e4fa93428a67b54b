//! Serves one connection, from its first message to its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::batch;
use super::program::{self, Listed};
use super::sandboxes::{Sandboxes, require_absolute};
use super::watch;
use crate::protocol::VERSION;
use crate::protocol::caller::{ClientEvent, ClientRequest, Open};
use crate::sandbox::{Sandbox, SessionRequest};
use crate::supervisor::{
    AskHost, Caller, CallerEvent, FrameCaller, Image, Payload, Refusal, await_caller,
};

/// Serves a received connection until its other end is closed.
pub fn serve(socket: &Arc<OwnedFd>, sandboxes: &Sandboxes) {
    // An unusable socket is closed, which the other end notices.
    let Ok(mut caller) = FrameCaller::new(Arc::clone(socket)) else {
        return;
    };
    while let Ok(event) = await_caller(&mut caller) {
        let (request, payload) = match event {
            CallerEvent::Request(request, payload) => (request, payload),
            CallerEvent::Nothing => continue,
            CallerEvent::Gone => return,
            CallerEvent::Malformed(how) => return caller.refuse(None, Refusal::Protocol(how)),
        };
        if let Err(refusal) = require_version(&request) {
            caller.refuse(None, refusal);
            continue;
        }
        let answer = match request {
            ClientRequest::Open(open) => match open_session(sandboxes, &open, payload) {
                Ok((sandbox, request, _listed)) => {
                    // The caller has received any error.
                    _ = sandbox.serve_session(&mut caller, request);
                    return;
                }
                Err(refusal) => Err(refusal),
            },
            ClientRequest::Map(open) => match sandboxes.get(&open.sandbox) {
                Ok((sandbox, policy)) => {
                    return batch::serve(caller, socket, sandbox, &policy, &open);
                }
                Err(refusal) => Err(refusal),
            },
            ClientRequest::Program(wanted) => {
                return program::serve(caller, &sandboxes.programs, *wanted);
            }
            ClientRequest::Watch(wanted) => {
                return watch::serve(caller, &sandboxes.programs, &wanted);
            }
            ClientRequest::Attach { session, pid } => {
                return program::attach(caller, &sandboxes.programs, session, pid);
            }
            ClientRequest::Programs { session } => sandboxes.programs.running(session),
            // The session that made the snapshot may have ended.
            ClientRequest::Discard { snapshot } => {
                sandboxes.discard_snapshot(snapshot);
                Ok(ClientEvent::Closed)
            }
            ClientRequest::Save { snapshot, path } => {
                let saved = sandboxes.save_snapshot(snapshot, &path);
                saved.map(|bytes| ClientEvent::Saved { bytes })
            }
            other => {
                let first = "the first message of a connection opens its session or batch";
                caller.refuse(other.id(), Refusal::Protocol(first.into()));
                continue;
            }
        };
        match answer {
            Ok(event) => caller.answer(event, Payload::default()),
            Err(refusal) => caller.refuse(None, refusal),
        }
    }
}

fn require_version(request: &ClientRequest) -> Result<(), Refusal> {
    let version = match request {
        ClientRequest::Open(open) => open.version,
        ClientRequest::Map(open) => open.version,
        ClientRequest::Program(wanted) => wanted.version,
        ClientRequest::Watch(wanted) => wanted.version,
        _ => VERSION,
    };
    if version == VERSION {
        return Ok(());
    }
    let ours = format!("this supervisor speaks version {VERSION} of the protocol, not {version}");
    Err(Refusal::Protocol(ours))
}

/// Returns the sandbox of a session and the request to open it. The session's programs are listed until `Listed` is
/// dropped.
fn open_session<'s>(
    sandboxes: &'s Sandboxes,
    open: &Open,
    payload: Payload,
) -> Result<(Arc<Sandbox>, SessionRequest, Listed<'s>), Refusal> {
    let (sandbox, _) = sandboxes.get(&open.sandbox)?;
    let from = snapshot_of(&sandbox, open)?;
    let programs = sandbox.programs()?;
    let listed = sandboxes.programs.list(programs.clone());
    let request = SessionRequest {
        programs: Some(programs.queue()),
        number: Some(listed.number),
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
    Ok((sandbox, request, listed))
}

/// Returns the snapshot from which a session starts, if any.
fn snapshot_of(sandbox: &Sandbox, open: &Open) -> Result<Option<Arc<Image>>, Refusal> {
    match (open.snapshot, &open.saved) {
        (Some(number), None) => {
            let image = sandbox.snapshots().get(number);
            Ok(Some(image.ok_or(Refusal::NoSnapshot(number))?))
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
