//! Files to a sandbox and from it.

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
use super::{Answer, OfSandbox, Place};
use crate::failure::Failure;
use crate::files::{put, read};
use crate::http::RawBody;
use crate::server::App;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct Asked {
    path: Option<String>,
    username: String,
}

/// The parts of a form. Each takes a while, however short it is.
const MOST_PARTS: usize = 4096;

/// The bytes of a file.
pub async fn download(
    State(app): State<Arc<App>>,
    Extension(sandbox): OfSandbox,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Response, Failure> {
    let Query(asked) = asked?;
    check_user(&asked.username)?;
    let place = Place::new(&asked.path.unwrap_or_default())?;
    let open = sandbox.context(None)?.open;
    let budget = open.tenant.budget.clone();
    let read = open.with(move |session| read(app.longest_answer, &budget, session, place.as_str()));
    let (bytes, held) = read.await?;
    let headers = [(CONTENT_TYPE, "application/octet-stream")];
    Ok((headers, held.with(Bytes::from(bytes))).into_response())
}

/// Writes files, with the directories above them: the parts of a form, of which each has its path as its name.
pub async fn upload(
    Extension(sandbox): OfSandbox,
    asked: Result<Query<Asked>, QueryRejection>,
    headers: HeaderMap,
    RawBody { bytes, held }: RawBody,
) -> Answer {
    let Query(asked) = asked?;
    check_user(&asked.username)?;
    if headers.contains_key(CONTENT_ENCODING) {
        let reason = "Content-Encoding: files come as they are";
        return Err(Failure::Unsupported(reason.to_owned()));
    }
    // The parts are copies.
    let copies = sandbox.tenant.budget.hold(bytes.len() as u64)?;
    let files = parts(headers.get(CONTENT_TYPE), bytes, asked.path).await?;
    let open = sandbox.context(None)?.open;
    let written = open.with(move |session| {
        let mut written = Vec::new();
        for (place, contents) in files {
            put(session, place.as_str(), &contents)?;
            written.push(json!({ "name": place.name(), "path": place.guest(), "type": "file" }));
        }
        drop((held, copies));
        Ok(written)
    });
    Ok(Json(written.await?.into()))
}

/// The files of a form. One of its own may have its path in the URL.
async fn parts(
    kind: Option<&HeaderValue>,
    body: Bytes,
    path: Option<String>,
) -> Result<Vec<(Place, Bytes)>, Failure> {
    let malformed = |problem: String| Failure::Request(format!("the form is malformed: {problem}"));
    let mut request = Request::new(body.into());
    if let Some(kind) = kind {
        request.headers_mut().insert(CONTENT_TYPE, kind.clone());
    }
    // The length of the body is bounded already.
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
        if count > MOST_PARTS {
            return Err(malformed(format!("it has more than {MOST_PARTS} parts")));
        }
        if part.name() != Some("file") {
            continue;
        }
        let named = path.clone().or_else(|| part.file_name().map(str::to_owned));
        let named = named.ok_or_else(|| malformed("a file has no path".to_owned()))?;
        let bytes = part
            .bytes()
            .await
            .map_err(|error| malformed(error.body_text()))?;
        files.push((Place::new(&named)?, bytes));
    }
    Ok(files)
}
