//! Files of a session. Paths are relative to its work directory.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use sandfork::session::{Parents, Removal};
use serde::Deserialize;

use super::sessions::Named;
use crate::failure::{Failure, InPath};
use crate::files::{self, failed, put};
use crate::http::RawBody;
use crate::open::Open;
use crate::server::App;

/// The path parameter after the session's id.
#[derive(Deserialize)]
pub struct InSession {
    path: String,
}

/// Downloads a file.
pub async fn read(
    State(app): State<Arc<App>>,
    Named(open): Named,
    Path(InSession { path }): Path<InSession>,
) -> Result<Response, Failure> {
    let budget = open.tenant.budget.clone();
    let read =
        open.with_session(move |session| files::read(app.max_response, &budget, session, &path));
    let (bytes, held) = read.await?;
    let headers = [(CONTENT_TYPE, "application/octet-stream")];
    Ok((headers, held.into_body(Bytes::from(bytes))).into_response())
}

/// Writes a file, creating its parent directories.
pub async fn write(
    named: Result<Named, Failure>,
    path: InPath<InSession>,
    RawBody { bytes, held }: RawBody,
) -> Result<StatusCode, Failure> {
    let (Named(open), Path(InSession { path })) = (named?, path?);
    open.with_session(move |session| {
        let written = put(session, &path, &bytes);
        drop(held);
        written
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Removes a file, or a directory recursively.
pub async fn remove(
    Named(open): Named,
    Path(InSession { path }): Path<InSession>,
) -> Result<StatusCode, Failure> {
    let removed =
        open.with_session(move |session| session.remove(&path, Removal::Tree).map_err(failed));
    removed.await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists a directory.
pub async fn list(
    Named(open): Named,
    Path(InSession { path }): Path<InSession>,
) -> Result<Response, Failure> {
    entries(&open, path).await
}

/// Lists the work directory.
pub async fn list_root(Named(open): Named) -> Result<Response, Failure> {
    entries(&open, ".".to_owned()).await
}

async fn entries(open: &Open, path: String) -> Result<Response, Failure> {
    let budget = open.tenant.budget.clone();
    open.with_session(move |session| {
        let entries = session.list(&path).map_err(failed)?;
        budget.answer(&BTreeMap::from([("entries", entries)]))
    })
    .await
}

/// Creates a directory and its parents.
pub async fn make_directory(
    Named(open): Named,
    Path(InSession { path }): Path<InSession>,
) -> Result<StatusCode, Failure> {
    let made =
        open.with_session(move |session| session.make_dir(&path, Parents::Made).map_err(failed));
    made.await?;
    Ok(StatusCode::NO_CONTENT)
}
