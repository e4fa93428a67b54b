//! Watches directories for clients, which either stream or poll the events.

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

use super::commands::spawn_thread;
use super::registry::Sandbox;
use super::rpc::{check_header, end, frame, message, stream};
use super::{Answer, OfSandbox, WorkPath};
use crate::failure::Failure;
use crate::files::failed;
use crate::http::{JsonBody, RawBody};
use crate::locked;
use crate::running::blocking;
use crate::sessions::new_id;
use crate::tenant::MAX_WATCHES;

/// The maximum number of bytes of events in a response. The last batch of events may exceed it.
const MAX_BYTES: usize = 256 << 10;
/// The approximate number of bytes of an event without its path.
const EVENT_OVERHEAD: usize = 64;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct WatchRequest {
    path: String,
    recursive: bool,
}

#[derive(Debug, Deserialize)]
pub struct WatcherRequest {
    #[serde(rename = "watcherId")]
    id: String,
}

/// A watched directory, which counts towards its tenant's limit.
#[derive(Debug)]
pub struct Watching {
    watch: Watch,
    _counts: OwnedSemaphorePermit,
}

fn missing() -> Failure {
    Failure::NotFound("there is no such watcher".to_owned())
}

impl WatchRequest {
    async fn begin(self, sandbox: &Sandbox) -> Result<Arc<Watching>, Failure> {
        let path = WorkPath::new(&self.path)?;
        let watcher = sandbox.context(None)?.open.watcher.clone();
        let counts = Arc::clone(&sandbox.tenant.watches).try_acquire_owned();
        let counts = counts.map_err(|_| {
            Failure::Busy(format!(
                "the tenant already watches {MAX_WATCHES} directories, its limit: stop a watcher"
            ))
        })?;
        let depth = if self.recursive {
            Depth::Tree
        } else {
            Depth::Directory
        };
        blocking(move || {
            let watch = watcher.watch(path.as_str(), depth).map_err(failed)?;
            Ok(Arc::new(Watching {
                watch,
                _counts: counts,
            }))
        })
        .await
    }
}

impl Watching {
    /// Waits for the next events, until `until`.
    fn next(&self, until: Option<Instant>) -> Result<Vec<FileEvent>, Failure> {
        let events = self.watch.next(until)?;
        if events.contains(&FileEvent::Overflow) {
            return Err(Failure::Lost(
                "events were lost: there were more events than are kept, or more directories than are watched; list the \
                 directory again"
                    .to_owned(),
            ));
        }
        Ok(events)
    }

    /// Streams the events until the client disconnects.
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
            // Fails if the client has disconnected.
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

/// Closes the watch of a stream when the client disconnects.
struct CloseOnDrop(Arc<Watching>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.watch.close();
    }
}

/// Watches a directory, and streams its events.
pub async fn watch_dir(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    mut posted: RawBody,
) -> Result<Response, Failure> {
    check_header(&headers)?;
    let params: WatchRequest = message(&mut posted)?;
    let watching = params.begin(&sandbox).await?;
    let (sender, receiver) = channel(1);
    // The queue is empty.
    _ = sender.try_send(frame(0, &json!({ "start": {} })));
    let closes = CloseOnDrop(Arc::clone(&watching));
    spawn_thread(move || watching.send(&sender))?;
    Ok(stream(receiver, &json!({ "keepalive": {} }), closes))
}

/// Creates a watcher, whose events the client polls.
pub async fn create(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<WatchRequest>,
) -> Answer {
    check_header(&headers)?;
    let watching = posted.value.begin(&sandbox).await?;
    let id = new_id()?;
    locked(&sandbox.watchers).insert(id.clone(), watching);
    Ok(Json(json!({ "watcherId": id })))
}

/// Returns the events since the last poll.
pub async fn events(Extension(sandbox): OfSandbox, posted: JsonBody<WatcherRequest>) -> Answer {
    let id = posted.value.id;
    let found = locked(&sandbox.watchers).get(&id).cloned();
    let watching = found.ok_or_else(missing)?;
    let happened = blocking(move || {
        let (mut events, mut bytes) = (Vec::new(), 0);
        while bytes < MAX_BYTES {
            let next = watching.next(Some(Instant::now()))?;
            if next.is_empty() {
                break;
            }
            let paths = next.iter().filter_map(FileEvent::path);
            bytes += paths.map(|path| path.len() + EVENT_OVERHEAD).sum::<usize>();
            events.extend(next.iter().filter_map(described));
        }
        Ok(json!({ "events": events }))
    });
    let happened = happened.await;
    if let Err(Failure::Ended(_)) = happened {
        // Remove a watcher whose watch has ended.
        let ended = locked(&sandbox.watchers).remove(&id);
        drop(ended);
    }
    Ok(Json(happened?))
}

/// Removes a watcher.
pub async fn remove(Extension(sandbox): OfSandbox, posted: JsonBody<WatcherRequest>) -> Answer {
    let removed = locked(&sandbox.watchers).remove(&posted.value.id);
    removed.ok_or_else(missing)?;
    Ok(Json(json!({})))
}
