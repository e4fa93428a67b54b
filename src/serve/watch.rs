//! Serves a connection that watches a directory in the session of another connection.

use super::program::SessionPrograms;
use crate::protocol::caller::{ClientEvent, FileEvent, ProgramEnded, WatchRequest};
use crate::supervisor::{
    BACKLOG, Caller, CallerEvent, Depth, FrameCaller, Payload, Refusal, Watch, awaited, drain, wait,
};

/// The maximum bytes of paths in one event. Encoded as JSON, paths are several times as long.
const MAX_BYTES: usize = 128 << 10;

/// Watches a directory for a caller until the watch ends or the caller disconnects.
pub fn serve(mut caller: FrameCaller, sessions: &SessionPrograms, wanted: &WatchRequest) {
    let depth = if wanted.recursive {
        Depth::Tree
    } else {
        Depth::Directory
    };
    let programs = sessions.of(wanted.session);
    match programs.and_then(|it| Ok(it.watcher().begin(&wanted.path, depth)?)) {
        Ok(watch) => {
            caller.answer(ClientEvent::Watching, Payload::default());
            forward_events(&mut caller, &watch);
        }
        Err(refusal) => caller.refuse(None, refusal),
    }
    // Fails if the caller is gone.
    _ = drain(&mut caller, None);
}

fn forward_events(caller: &mut FrameCaller, watch: &Watch) {
    loop {
        caller.flush();
        match caller.recv() {
            CallerEvent::Nothing => {}
            CallerEvent::Gone => return,
            CallerEvent::Malformed(how) => {
                return caller.refuse(None, Refusal::Protocol(how));
            }
            CallerEvent::Request(other, _) => {
                let reason = "this connection watches a directory".to_owned();
                caller.refuse(other.id(), Refusal::Protocol(reason));
                continue;
            }
        }
        // While the caller does not read, events stay in the kernel's bounded queue.
        let flowing = caller.unsent() < BACKLOG;
        if flowing {
            match watch.events_now() {
                Ok(events) => send(caller, events),
                Err(why) => {
                    let ended = ProgramEnded {
                        end: "lost",
                        why: Some(why),
                        ..ProgramEnded::default()
                    };
                    return caller.answer(ClientEvent::Ended(ended), Payload::default());
                }
            }
        }
        let ([changes, ended], ready) = watch.sources();
        let sources = [
            awaited(caller),
            changes.filter(|_| flowing),
            ended.filter(|_| flowing),
        ];
        // If this fails, the next turn checks every source.
        _ = wait(sources, ready.filter(|_| flowing));
    }
}

fn send(caller: &mut FrameCaller, events: Vec<FileEvent>) {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for event in events {
        if bytes > MAX_BYTES {
            let events = std::mem::take(&mut part);
            caller.answer(ClientEvent::Changes { events }, Payload::default());
            bytes = 0;
        }
        bytes += event.path().map_or(0, str::len);
        part.push(event);
    }
    if !part.is_empty() {
        caller.answer(ClientEvent::Changes { events: part }, Payload::default());
    }
}
