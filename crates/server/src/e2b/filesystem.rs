//! The service `filesystem.Filesystem`: entries of the work directory of a sandbox's first context.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use axum::{Extension, Json};
use sandfork::session::{FileEntry, Parents, Removal, Session};
use serde::Deserialize;
use serde_json::{Value, json};

use super::context::set_up;
use super::registry::Sandbox;
use super::rpc::check_header;
use super::{Answer, OfSandbox, Place};
use crate::failure::Failure;
use crate::files::failed;
use crate::http::JsonBody;
use crate::running::in_session;
use crate::server::App;

/// The most entries of a list of more than one directory.
const MOST_ENTRIES: usize = 10_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct OfPath {
    path: String,
    depth: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Move {
    source: String,
    destination: String,
}

/// Does this with the session of the sandbox's files.
async fn with<T: Send + 'static>(
    sandbox: &Sandbox,
    headers: &HeaderMap,
    act: impl FnOnce(&mut Session) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    check_header(headers)?;
    sandbox.context(None)?.open.with(act).await
}

/// What the clients know of an entry. Its mode and owner are not said.
fn described(place: &Place, entry: &FileEntry) -> Value {
    let kind = match entry.kind {
        "file" => "FILE_TYPE_FILE",
        "dir" => "FILE_TYPE_DIRECTORY",
        "symlink" => "FILE_TYPE_SYMLINK",
        _ => "FILE_TYPE_UNSPECIFIED",
    };
    let modified = Duration::try_from_secs_f64(entry.modified).unwrap_or_default();
    // Guests set times as they like, and there are years that no text can have.
    let modified = modified.min(Duration::from_secs(253_402_300_799));
    json!({
        "name": place.name(),
        "type": kind,
        "path": place.guest(),
        "size": entry.size.to_string(),
        "modifiedTime": humantime::format_rfc3339_millis(UNIX_EPOCH + modified).to_string(),
    })
}

fn entry(session: &mut Session, place: &Place) -> Result<Value, Failure> {
    let entry = session.stat(place.as_str()).map_err(failed)?;
    Ok(json!({ "entry": described(place, &entry) }))
}

/// Describes an entry.
pub async fn stat(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<OfPath>,
) -> Answer {
    let place = Place::new(&posted.value.path)?;
    let entry = with(&sandbox, &headers, move |session| entry(session, &place));
    Ok(Json(entry.await?))
}

/// Makes a directory, with those above it.
pub async fn make_dir(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<OfPath>,
) -> Answer {
    let place = Place::new(&posted.value.path)?;
    let made = with(&sandbox, &headers, move |session| {
        if session.stat(place.as_str()).is_ok() {
            return Err(Failure::Exists(format!("`{}` exists", place.guest())));
        }
        session
            .make_dir(place.as_str(), Parents::Made)
            .map_err(failed)?;
        entry(session, &place)
    });
    Ok(Json(made.await?))
}

/// Removes an entry, and all below it.
pub async fn remove(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<OfPath>,
) -> Answer {
    let place = Place::new(&posted.value.path)?;
    let removed = with(&sandbox, &headers, move |session| {
        session
            .remove(place.as_str(), Removal::Tree)
            .map_err(failed)
    });
    removed.await?;
    Ok(Json(json!({})))
}

/// The entries of a directory, down to a depth.
pub async fn list_dir(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<OfPath>,
) -> Result<Response, Failure> {
    let JsonBody { value: asked, held } = posted;
    let place = Place::new(&asked.path)?;
    let listed = with(&sandbox, &headers, move |session| {
        let mut listed = Vec::new();
        let mut directories = vec![(place, asked.depth.max(1))];
        while let Some((directory, depth)) = directories.pop() {
            for entry in session.list(directory.as_str()).map_err(failed)? {
                let place = directory.entry(&entry.name);
                listed.push(described(&place, &entry));
                if entry.kind == "dir" && depth > 1 {
                    directories.push((place, depth - 1));
                }
                if listed.len() > MOST_ENTRIES {
                    return Err(Failure::Request(format!(
                        "depth: there are more than {MOST_ENTRIES} entries"
                    )));
                }
            }
        }
        held.answer(&BTreeMap::from([("entries", listed)]))
    });
    listed.await
}

/// Moves an entry: the guest's own Python does it, with the rights of the guest.
pub async fn rename(
    State(app): State<Arc<App>>,
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<Move>,
) -> Answer {
    check_header(&headers)?;
    let asked = posted.value;
    let (source, destination) = (Place::new(&asked.source)?, Place::new(&asked.destination)?);
    let (from, to) = (json!(source.guest()), json!(destination.guest()));
    let code = format!("__import__('os').rename({from}, {to})");
    let open = sandbox.context(None)?.open;
    let moved = in_session(&app, &sandbox.tenant, open, move |session, turn| {
        set_up(session, turn, code)?;
        entry(session, &destination)
    });
    Ok(Json(moved.await?))
}
