//! Remote calls of `envd`, as Connect has them (<https://connectrpc.com/docs/protocol>), with JSON.

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

use crate::failure::{Failure, InPath, in_form};
use crate::http::{RawBody, memory_of_values};

/// The type of a stream of messages.
pub const STREAM: &str = "application/connect+json";

/// Connect's word for it, and the status of an answer.
fn code(failure: &Failure) -> (&'static str, StatusCode) {
    match failure {
        Failure::Unauthorized(_) => ("unauthenticated", StatusCode::UNAUTHORIZED),
        Failure::OtherSite(_) => ("permission_denied", StatusCode::FORBIDDEN),
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
        Failure::Mistake => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
    }
}

fn described(failure: &Failure) -> Value {
    json!({ "code": code(failure).0, "message": failure.message() })
}

/// The answer to a call without a result, as its clients understand it.
pub fn failed(failure: &Failure) -> Response {
    (code(failure).1, Json(described(failure))).into_response()
}

/// The same for a call whose answer is a stream: its end says why.
pub fn stream_failed(failure: &Failure) -> Response {
    ([(CONTENT_TYPE, STREAM)], end(failure)).into_response()
}

/// The flag of the frame that ends a stream.
pub const END: u8 = 2;

/// A message of a stream, with its flag and its length before it.
pub fn frame(flag: u8, message: &Value) -> Bytes {
    let text = message.to_string();
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    let mut frame = BytesMut::with_capacity(text.len() + 5);
    frame.put_u8(flag);
    frame.put_u32(length);
    frame.put_slice(text.as_bytes());
    frame.freeze()
}

/// While nothing happens, a stream says as often that it goes on.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// An answer of messages that come later, with `alive` while none does. It owns what ends with it.
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

/// The end of a stream, for this reason.
pub fn end(failure: &Failure) -> Bytes {
    frame(END, &json!({ "error": described(failure) }))
}

/// The one message of a call that is answered with a stream.
///
/// # Errors
/// If it is not one.
pub fn message<T: DeserializeOwned>(body: &mut RawBody) -> Result<T, Failure> {
    let malformed = || Failure::Request("the body is no message of Connect".to_owned());
    let (head, text) = body.bytes.split_first_chunk::<5>().ok_or_else(malformed)?;
    let [flag, length @ ..] = *head;
    if flag != 0 || u32::from_be_bytes(length) as usize != text.len() {
        return Err(malformed());
    }
    body.held.grow(memory_of_values(text))?;
    serde_json::from_slice(text)
        .map_err(|error| Failure::Request(format!("the message is not what it must be: {error}")))
}

/// A call that this server does not serve. Its body is read all the same: a connection on which some is left is closed.
pub async fn unsupported(
    call: InPath<String>,
    headers: HeaderMap,
    _read: Result<RawBody, Failure>,
) -> Response {
    let failure = call.map_or_else(Failure::from, |Path(call)| {
        let call: String = call.chars().take(64).collect();
        Failure::Unsupported(format!("`{call}` is not served"))
    });
    let response = failure.into_response();
    if headers.get(CONTENT_TYPE).is_some_and(|kind| kind == STREAM) {
        return in_form(stream_failed, response);
    }
    response
}

/// Checks the user that a call is for: there is one.
pub fn check_user(name: &str) -> Result<(), Failure> {
    match name {
        "" | "user" => Ok(()),
        _ => Err(Failure::Unsupported(
            "user: sandboxes have one user, and no other".to_owned(),
        )),
    }
}

/// The same, for calls that have it in a header.
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
