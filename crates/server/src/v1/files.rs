//! The files of a session. Paths are those in its work directory.

use std::io::{self, Read};
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use sandfork::session::{Parents, Removal, Session};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::files::put;
use crate::http::RawBody;
use crate::running::blocking;
use crate::server::App;
use crate::tenant::Tenant;

type OfTenant = Extension<Arc<Tenant>>;

/// Does this with the session, on a thread that may block.
async fn with<T: Send + 'static>(
    app: &App,
    tenant: &Tenant,
    id: &str,
    act: impl FnOnce(&mut Session) -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let open = app.sessions.find(tenant, id)?;
    let mut session = open.turn().await;
    blocking(move || act(&mut session)).await
}

/// An error of a file: what is missing is not found, and all else is a mistake of the request.
fn failure(path: &str, error: sandfork::Error) -> Failure {
    match error
        .errno()
        .map(|errno| io::Error::from_raw_os_error(errno).kind())
    {
        Some(io::ErrorKind::NotFound) => Failure::NotFound(format!("`{path}`: {error}")),
        Some(_) => Failure::Request(format!("`{path}`: {error}")),
        None => error.into(),
    }
}

/// The bytes of a file.
pub async fn read(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    Path((id, path)): Path<(String, String)>,
) -> Result<Response, Failure> {
    let (named, most) = (path.clone(), app.longest_answer);
    let opened = with(&app, &tenant, &id, move |session| {
        session
            .open_read(&named)
            .map_err(|error| failure(&named, error))
    });
    let (file, size) = opened.await?;
    if size > most {
        let problem = format!("`{path}` has {size} bytes, more than the {most} of an answer");
        return Err(Failure::Request(problem));
    }
    let held = app.bodies.budget.hold(size)?;
    let bytes = blocking(move || {
        let mut bytes = Vec::new();
        // The guest may go on writing.
        let read = file.take(size).read_to_end(&mut bytes);
        read.map_err(|error| Failure::Request(format!("`{path}`: {error}")))?;
        Ok(bytes)
    });
    let headers = [(CONTENT_TYPE, "application/octet-stream")];
    Ok((headers, held.with(Bytes::from(bytes.await?))).into_response())
}

/// Writes a file, with the directories above it.
pub async fn write(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    Path((id, path)): Path<(String, String)>,
    RawBody { bytes, held }: RawBody,
) -> Result<StatusCode, Failure> {
    with(&app, &tenant, &id, move |session| {
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
    with(&app, &tenant, &id, move |session| {
        let removed = session.remove(&path, Removal::Tree);
        removed.map_err(|error| failure(&path, error))
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
    let entries = with(&app, &tenant, &id, move |session| {
        session.list(&path).map_err(|error| failure(&path, error))
    });
    Ok(Json(json!({ "entries": entries.await? })))
}

/// Makes a directory, with those above it.
pub async fn make_directory(
    State(app): State<Arc<App>>,
    Extension(tenant): OfTenant,
    Path((id, path)): Path<(String, String)>,
) -> Result<StatusCode, Failure> {
    with(&app, &tenant, &id, move |session| {
        let made = session.make_dir(&path, Parents::Made);
        made.map_err(|error| failure(&path, error))
    })
    .await?;
    Ok(StatusCode::NO_CONTENT)
}
