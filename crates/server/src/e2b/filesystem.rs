//! The service `filesystem.Filesystem`: files in the work directory of a sandbox's first context.

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
use super::{Answer, OfSandbox, WorkPath};
use crate::failure::Failure;
use crate::files::failed;
use crate::http::JsonBody;
use crate::running::in_session;
use crate::server::App;

/// The maximum number of entries of a recursive listing.
const MAX_ENTRIES: usize = 10_000;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct PathRequest {
    path: String,
    depth: usize,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Move {
    source: String,
    destination: String,
}

/// Runs a function with the session that holds the sandbox's files.
async fn with_session<T: Send + 'static>(
    sandbox: &Sandbox,
    headers: &HeaderMap,
    act: impl FnOnce(&mut Session) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    check_header(headers)?;
    sandbox.context(None)?.open.with_session(act).await
}

/// Describes an entry. Its mode and owner are omitted.
fn described(path: &WorkPath, entry: &FileEntry) -> Value {
    let kind = match entry.kind {
        "file" => "FILE_TYPE_FILE",
        "dir" => "FILE_TYPE_DIRECTORY",
        "symlink" => "FILE_TYPE_SYMLINK",
        _ => "FILE_TYPE_UNSPECIFIED",
    };
    let modified = Duration::try_from_secs_f64(entry.modified).unwrap_or_default();
    // A guest may set any time, but RFC 3339 has no year after 9999.
    let modified = modified.min(Duration::from_secs(253_402_300_799));
    json!({
        "name": path.name(),
        "type": kind,
        "path": path.guest(),
        "size": entry.size.to_string(),
        "modifiedTime": humantime::format_rfc3339_millis(UNIX_EPOCH + modified).to_string(),
    })
}

fn entry(session: &mut Session, path: &WorkPath) -> Result<Value, Failure> {
    let entry = session.stat(path.as_str()).map_err(failed)?;
    Ok(json!({ "entry": described(path, &entry) }))
}

/// Describes a file system entry.
pub async fn stat(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<PathRequest>,
) -> Answer {
    let path = WorkPath::new(&posted.value.path)?;
    let entry = with_session(&sandbox, &headers, move |session| entry(session, &path));
    Ok(Json(entry.await?))
}

/// Creates a directory and its parents.
pub async fn make_dir(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<PathRequest>,
) -> Answer {
    let path = WorkPath::new(&posted.value.path)?;
    let made = with_session(&sandbox, &headers, move |session| {
        if session.stat(path.as_str()).is_ok() {
            return Err(Failure::Exists(format!(
                "`{}` already exists",
                path.guest()
            )));
        }
        session
            .make_dir(path.as_str(), Parents::Made)
            .map_err(failed)?;
        entry(session, &path)
    });
    Ok(Json(made.await?))
}

/// Removes an entry recursively.
pub async fn remove(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<PathRequest>,
) -> Answer {
    let path = WorkPath::new(&posted.value.path)?;
    let removed = with_session(&sandbox, &headers, move |session| {
        session.remove(path.as_str(), Removal::Tree).map_err(failed)
    });
    removed.await?;
    Ok(Json(json!({})))
}

/// Lists a directory, up to the given depth.
pub async fn list_dir(
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<PathRequest>,
) -> Result<Response, Failure> {
    let JsonBody {
        value: params,
        held,
    } = posted;
    let path = WorkPath::new(&params.path)?;
    let listed = with_session(&sandbox, &headers, move |session| {
        let mut listed = Vec::new();
        let mut directories = vec![(path, params.depth.max(1))];
        while let Some((directory, depth)) = directories.pop() {
            for entry in session.list(directory.as_str()).map_err(failed)? {
                let path = directory.entry(&entry.name);
                listed.push(described(&path, &entry));
                if entry.kind == "dir" && depth > 1 {
                    directories.push((path, depth - 1));
                }
                if listed.len() > MAX_ENTRIES {
                    return Err(Failure::Request(format!(
                        "depth: there are more than {MAX_ENTRIES} entries: list a smaller directory"
                    )));
                }
            }
        }
        held.answer(&BTreeMap::from([("entries", listed)]))
    });
    listed.await
}

/// Moves an entry. The guest's own Python performs the move, with the guest's permissions.
pub async fn rename(
    State(app): State<Arc<App>>,
    Extension(sandbox): OfSandbox,
    headers: HeaderMap,
    posted: JsonBody<Move>,
) -> Answer {
    check_header(&headers)?;
    let params = posted.value;
    let (source, destination) = (
        WorkPath::new(&params.source)?,
        WorkPath::new(&params.destination)?,
    );
    let (from, to) = (json!(source.guest()), json!(destination.guest()));
    let code = format!("__import__('os').rename({from}, {to})");
    let open = sandbox.context(None)?.open;
    let moved = in_session(&app, &sandbox.tenant, open, move |session, turn| {
        set_up(session, turn, code)?;
        entry(session, &destination)
    });
    Ok(Json(moved.await?))
}
