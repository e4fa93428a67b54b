//! The files of a session. Paths are those in its work directory.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sandfork::session::{Parents, Removal};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::files::{self, failed, put};
use crate::http::RawBody;
use crate::server::App;
use crate::tenant::Tenant;

type OfTenant = Extension<Arc<Tenant>>;

/// The bytes of a file.
pub async fn read(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    Path((id, path)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let open = app.sessions.find(&tenant, &id)?;
    let read = open.with(move |session| files::read(&app, session, &path));
    let (bytes, held) = read.await?;
    let headers = [(CONTENT_TYPE, "application/octet-stream")];
    Ok((headers, held.with(Bytes::from(bytes))).into_response())
}

/// Writes a file, with the directories above it.
pub async fn write(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    Path((id, path)): Path<(String, String)>,
    RawBody { bytes, held }: RawBody,
) -> Result<StatusCode, Failure> {
    let open = app.sessions.find(&tenant, &id)?;
    open.with(move |session| {
        let written = put(session, &path, &bytes);
        drop(held);
        written
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a file, or a directory with all that is in it.
pub async fn remove(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    Path((id, path)): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    let open = app.sessions.find(&tenant, &id)?;
    open.with(move |session| {
        let removed = session.remove(&path, Removal::Tree);
        removed.map_err(failed)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// The entries of a directory.
pub async fn list(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    Path((id, path)): Path<(String, String)>,
) -> Result<Json<Value>, Failure> {
    let open = app.sessions.find(&tenant, &id)?;
    let entries = open.with(move |session| session.list(&path).map_err(failed));
    Ok(Json(json!({ "entries": entries.await? })))
}

/// Makes a directory, with those above it.
pub async fn make_directory(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    Path((id, path)): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    let open = app.sessions.find(&tenant, &id)?;
    open.with(move |session| {
        let made = session.make_dir(&path, Parents::Made);
        made.map_err(failed)
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
