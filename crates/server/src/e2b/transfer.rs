//! Transfers files to and from a sandbox.

use std::sync::Arc;

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, Multipart, Query, Request, State};
use axum::http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use bytes::Bytes;
use serde::Deserialize;
use serde_json::json;

use super::rpc::check_user;
use super::{Answer, OfSandbox, WorkPath};
use crate::failure::Failure;
use crate::files::{put, read};
use crate::http::RawBody;
use crate::server::App;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct FileQuery {
    path: Option<String>,
    username: String,
}

/// The maximum number of parts of a form. Each takes some time, however short it is.
const MAX_PARTS: usize = 4096;

/// Downloads a file.
pub async fn download(
    State(app): State<Arc<App>>,
    Extension(sandbox): OfSandbox,
    params: Result<Query<FileQuery>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(params) = params?;
    check_user(&params.username)?;
    let path = WorkPath::new(&params.path.unwrap_or_default())?;
    let open = sandbox.context(None)?.open;
    let budget = open.tenant.budget.clone();
    let read =
        open.with_session(move |session| read(app.max_response, &budget, session, path.as_str()));
    let (bytes, held) = read.await?;
    let headers = [(CONTENT_TYPE, "application/octet-stream")];
    Ok((headers, held.into_body(Bytes::from(bytes))).into_response())
}

/// Uploads files, creating their parent directories. Each part of the form has its path as its file name.
pub async fn upload(
    Extension(sandbox): OfSandbox,
    params: Result<Query<FileQuery>, QueryRejection>,
    headers: HeaderMap,
    RawBody { bytes, held }: RawBody,
) -> Answer {
    let Query(params) = params?;
    check_user(&params.username)?;
    if headers.contains_key(CONTENT_ENCODING) {
        let reason = "Content-Encoding: compressed files are not supported";
        return Err(Failure::Unsupported(reason.to_owned()));
    }
    // The parts are copies of the body.
    let copies = sandbox.tenant.budget.hold(bytes.len() as u64)?;
    let files = parts(headers.get(CONTENT_TYPE), bytes, params.path).await?;
    let open = sandbox.context(None)?.open;
    let written = open.with_session(move |session| {
        let mut written = Vec::new();
        for (path, contents) in files {
            put(session, path.as_str(), &contents)?;
            written.push(json!({ "name": path.name(), "path": path.guest(), "type": "file" }));
        }
        drop((held, copies));
        Ok(written)
    });
    Ok(Json(written.await?.into()))
}

/// Parses the files of a form. For a single file, the path may be in the URL.
async fn parts(
    kind: Option<&HeaderValue>,
    body: Bytes,
    path: Option<String>,
) -> Result<Vec<(WorkPath, Bytes)>, Failure> {
    let malformed = |problem: String| Failure::Request(format!("the form is malformed: {problem}"));
    let mut request = Request::new(body.into());
    if let Some(kind) = kind {
        request.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    // The length of the body has already been limited.
    axum::extract::DefaultBodyLimit::apply(
        axum::extract::DefaultBodyLimit::disable(),
        &mut request,
    );
    let form: Result<Multipart, _> = Multipart::from_request(request, &()).await;
    let mut form = form.map_err(|rejection| malformed(rejection.body_text()))?;
    let (mut files, mut count) = (Vec::new(), 0);
    while let Some(part) = form
        .next_field()
        .await
        .map_err(|error| malformed(error.body_text()))?
    {
        count += 1;
        if count > MAX_PARTS {
            return Err(malformed(format!("it has more than {MAX_PARTS} parts")));
        }
        if part.name() != Some("file") {
            continue;
        }
        let named = path.clone().or_else(|| part.file_name().map(str::to_owned));
        let named = named.ok_or_else(|| malformed("a file has no file name".to_owned()))?;
        let bytes = part
            .bytes()
            .await
            .map_err(|error| malformed(error.body_text()))?;
        files.push((WorkPath::new(&named)?, bytes));
    }
    Ok(files)
}
