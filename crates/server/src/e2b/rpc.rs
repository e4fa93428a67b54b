//! Remote calls of `envd`: the Connect protocol (<https://connectrpc.com/docs/protocol>) with JSON.

use std::convert::Infallible;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::Path;
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::{BufMut, Bytes, BytesMut};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::sync::mpsc::Receiver;
use tokio::time::{Instant, interval_at};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::failure::{Failure, InPath, rendered_by};
use crate::http::{RawBody, memory_of_values};

/// The content type of a message stream.
pub const STREAM: &str = "application/connect+json";

/// Returns the Connect error code and the HTTP status of a failure.
fn code(failure: &Failure) -> (&'static str, StatusCode) {
    match failure {
        Failure::Unauthorized(_) => ("unauthenticated", StatusCode::UNAUTHORIZED),
        Failure::CrossSite(_) => ("permission_denied", StatusCode::FORBIDDEN),
        Failure::Request(_) | Failure::NeverFits { .. } => {
            ("invalid_argument", StatusCode::BAD_REQUEST)
        }
        Failure::NotFound(_) | Failure::Ended(_) => ("not_found", StatusCode::NOT_FOUND),
        Failure::Exists(_) => ("already_exists", StatusCode::CONFLICT),
        Failure::Method(_) => ("unimplemented", StatusCode::METHOD_NOT_ALLOWED),
        Failure::Unsupported(_) => ("unimplemented", StatusCode::NOT_IMPLEMENTED),
        Failure::TooLong(_) | Failure::Quota(_) | Failure::Busy(_) => {
            ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS)
        }
        Failure::TooSlow => ("deadline_exceeded", StatusCode::GATEWAY_TIMEOUT),
        Failure::Draining | Failure::Sandbox(_) => ("unavailable", StatusCode::SERVICE_UNAVAILABLE),
        Failure::Lost(_) => ("data_loss", StatusCode::INTERNAL_SERVER_ERROR),
        Failure::Internal => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
    }
}

fn described(failure: &Failure) -> Value {
    json!({ "code": code(failure).0, "message": failure.message() })
}

/// Renders the failure of a unary call.
pub fn failed(failure: &Failure) -> Response {
    (code(failure).1, Json(described(failure))).into_response()
}

/// Renders the failure of a streaming call, in its end-of-stream message.
pub fn stream_failed(failure: &Failure) -> Response {
    ([(CONTENT_TYPE, STREAM)], end(failure)).into_response()
}

/// The flag of the end-of-stream frame.
pub const END: u8 = 2;

/// Encodes a message as a frame: flag, length, JSON.
pub fn frame(flag: u8, message: &Value) -> Bytes {
    let text = message.to_string();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut frame = BytesMut::with_capacity(text.len() + 5);
    frame.put_u8(flag);
    frame.put_u32(length);
    frame.put_slice(text.as_bytes());
    frame.freeze()
}

/// The interval of keep-alive messages on an idle stream.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Builds a streaming response that sends `alive` while no message arrives. The response owns `owned` until the stream
/// ends.
pub fn stream<T: Send + 'static>(messages: Receiver<Bytes>, alive: &Value, owned: T) -> Response {
    let messages = ReceiverStream::new(messages);
    let messages = messages.timeout_repeating(interval_at(Instant::now() + KEEPALIVE, KEEPALIVE));
    let alive = frame(0, alive);
    let messages = messages.map(move |message| {
        let _owned = &owned;
        Ok::<_, Infallible>(message.unwrap_or_else(|_| alive.clone()))
    });
    ([(CONTENT_TYPE, STREAM)], Body::from_stream(messages)).into_response()
}

/// Builds the end-of-stream frame of a failure.
pub fn end(failure: &Failure) -> Bytes {
    frame(END, &json!({ "error": described(failure) }))
}

/// Parses the single request message of a streaming call.
///
/// # Errors
/// Returns an error if the body is not exactly one valid message.
pub fn message<T: DeserializeOwned>(body: &mut RawBody) -> Result<T, Failure> {
    let malformed = || Failure::Request("the body is not a Connect message".to_owned());
    let (head, text) = body.bytes.split_first_chunk::<5>().ok_or_else(malformed)?;
    let [flag, length @ ..] = *head;
    if flag != 0 || u32::from_be_bytes(length) as usize != text.len() {
        return Err(malformed());
    }
    body.held.grow(memory_of_values(text))?;
    serde_json::from_slice(text)
        .map_err(|error| Failure::Request(format!("invalid message: {error}")))
}

/// Rejects an unsupported call. Its body is read nevertheless, because a connection with an unread body is closed.
pub async fn unsupported(
    call: InPath<String>,
    headers: HeaderMap,
    _read: Result<RawBody, Failure>,
) -> Response {
    let failure = call.map_or_else(Failure::from, |Path(call)| {
        let call: String = call.chars().take(64).collect();
        Failure::Unsupported(format!("`{call}` is not supported"))
    });
    let response = failure.into_response();
    if headers.get(CONTENT_TYPE).is_some_and(|kind| kind == STREAM) {
        return rendered_by(stream_failed, response);
    }
    response
}

/// Checks the user name of a call: sandboxes have a single user.
pub fn check_user(name: &str) -> Result<(), Failure> {
    match name {
        "" | "user" => Ok(()),
        _ => Err(Failure::Unsupported(
            "user: sandboxes have one user, `user`".to_owned(),
        )),
    }
}

/// Checks the user name of a call that carries it in a header.
pub fn check_header(headers: &HeaderMap) -> Result<(), Failure> {
    let value = headers
        .get(AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let pair = value.and_then(|value| STANDARD.decode(value.strip_prefix("Basic ")?).ok());
    let pair = pair
        .and_then(|pair| String::from_utf8(pair).ok())
        .unwrap_or_default();
    check_user(pair.split(':').next().unwrap_or_default())
}
