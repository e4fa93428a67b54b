//! Directories that clients watch: as a stream of events, or by asking for those that came.

use std::sync::Arc;
use std::time::Instant;

use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, Json};
use bytes::{Bytes, BytesMut};
use sandfork::session::{Depth, FileEvent, Watch};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::{Sender, channel};

use super::commands::on_a_thread;
use super::registry::Sandbox;
use super::rpc::{check_header, end, frame, message, stream};
use super::{Answer, OfSandbox, Place};
use crate::failure::Failure;
use crate::files::failed;
use crate::http::{JsonBody, RawBody};
use crate::locked;
use crate::running::blocking;
use crate::sessions::new_id;
use crate::tenant::MOST_WATCHES;

/// The most bytes of events in an answer, but for those that were read with the last of them.
const MOST_BYTES: usize = 256 << 10;
/// The bytes of an event besides its path, about.
const OF_EVENT: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OfDirectory {
    path: String,
    recursive: bool,
}

#[derive(Debug, Deserialize)]
pub struct OfWatcher {
    #[serde(rename = "watcherId")]
    id: String,
}

/// A directory that is watched, which counts for its tenant.
#[derive(Debug)]
pub struct Watching {
    watch: Watch,
    _counts: OwnedSemaphorePermit,
}

fn missing() -> Failure {
    Failure::NotFound("there is no such watcher".to_owned())
}

impl OfDirectory {
    async fn begin(self, sandbox: &Sandbox) -> Result<Arc<Watching>, Failure> {
        let place = Place::new(&self.path)?;
        let watcher = sandbox.context(None)?.open.watcher.clone();
        let counts = Arc::clone(&sandbox.tenant.watches).try_acquire_owned();
        let counts = counts.map_err(|_| {
            Failure::Busy(format!(
                "the tenant watches {MOST_WATCHES} directories, as many as it may: stop a watcher"
            ))
        })?;
        let depth = if self.recursive {
            Depth::Tree
        } else {
            Depth::Directory
        };
        blocking(move || {
            let watch = watcher.watch(place.as_str(), depth).map_err(failed)?;
            Ok(Arc::new(Watching {
                watch,
                _counts: counts,
            }))
        })
        .await
    }
}

impl Watching {
    /// Waits for what happens next, until `until`.
    fn next(&self, until: Option<Instant>) -> Result<Vec<FileEvent>, Failure> {
        let events = self.watch.next(until)?;
        if events.contains(&FileEvent::Overflow) {
            return Err(Failure::Lost(
                "there were more events than are kept, or more directories than are watched: list the directory again"
                    .to_owned(),
            ));
        }
        Ok(events)
    }

    /// Sends what happens, until the client has gone.
    fn send(&self, to: &Sender<Bytes>) {
        loop {
            let last = match self.next(None) {
                Ok(events) => {
                    let frames = events.iter().filter_map(described);
                    let frames = frames.map(|event| frame(0, &json!({ "filesystem": event })));
                    let all: BytesMut = frames.flatten().collect();
                    if to.blocking_send(all.freeze()).is_err() {
                        return;
                    }
                    continue;
                }
                Err(failure) => end(&failure),
            };
            // A client that has gone needs none.
            _ = to.blocking_send(last);
            return;
        }
    }
}

fn described(event: &FileEvent) -> Option<Value> {
    let kind = match event {
        FileEvent::Create(_) => "CREATE",
        FileEvent::Write(_) => "WRITE",
        FileEvent::Remove(_) => "REMOVE",
        FileEvent::Rename(_) => "RENAME",
        FileEvent::Chmod(_) => "CHMOD",
        _ => return None,
    };
    Some(json!({ "name": event.path(), "type": format!("EVENT_TYPE_{kind}") }))
}

/// Ends the watch of a stream whose client has gone.
struct CloseOnDrop(Arc<Watching>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.watch.close();
    }
}

/// Watches a directory, and sends what happens.
pub async fn watch_dir(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    mut posted: RawBody,
) -> Result<Response, Failure> {
    check_header(&headers)?;
    let asked: OfDirectory = message(&mut posted)?;
    let watching = asked.begin(&sandbox).await?;
    let (sender, receiver) = channel(1);
    // There is room.
    _ = sender.try_send(frame(0, &json!({ "start": {} })));
    let closes = CloseOnDrop(Arc::clone(&watching));
    on_a_thread(move || watching.send(&sender))?;
    Ok(stream(receiver, &json!({ "keepalive": {} }), closes))
}

/// Watches a directory for a client that asks what happened.
pub async fn create(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<OfDirectory>,
) -> Answer {
    check_header(&headers)?;
    let watching = posted.value.begin(&sandbox).await?;
    let id = new_id()?;
    locked(&sandbox.watchers).insert(id.clone(), watching);
    Ok(Json(json!({ "watcherId": id })))
}

/// What happened since the client asked last.
pub async fn events(Extension(sandbox): OfSandbox, posted: JsonBody<OfWatcher>) -> Answer {
    let id = posted.value.id;
    let found = locked(&sandbox.watchers).get(&id).cloned();
    let watching = found.ok_or_else(missing)?;
    let happened = blocking(move || {
        let (mut events, mut bytes) = (Vec::new(), 0);
        while bytes < MOST_BYTES {
            let next = watching.next(Some(Instant::now()))?;
            if next.is_empty() {
                break;
            }
            let paths = next.iter().filter_map(FileEvent::path);
            bytes += paths.map(|path| path.len() + OF_EVENT).sum::<usize>();
            events.extend(next.iter().filter_map(described));
        }
        Ok(json!({ "events": events }))
    });
    let happened = happened.await;
    if let Err(Failure::Ended(_)) = happened {
        // It has ended.
        let ended = locked(&sandbox.watchers).remove(&id);
        drop(ended);
    }
    Ok(Json(happened?))
}

/// Watches a directory no longer.
pub async fn remove(Extension(sandbox): OfSandbox, posted: JsonBody<OfWatcher>) -> Answer {
    let removed = locked(&sandbox.watchers).remove(&posted.value.id);
    removed.ok_or_else(missing)?;
    Ok(Json(json!({})))
}
