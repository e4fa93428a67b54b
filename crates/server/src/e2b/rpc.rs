//! Remote calls of `envd`, as Connect has them (<https://connectrpc.com/docs/protocol>), with JSON.

use axum::Json;
use axum::extract::Path;
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::http::header::AUTHORIZATION;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::failure::{Failure, FailureKind};

/// A call without a result, as its clients understand it.
#[derive(Debug)]
pub struct RpcFailure(pub Failure);

impl<F: Into<Failure>> From<F> for RpcFailure {
    fn from(failure: F) -> Self {
        Self(failure.into())
    }
}

impl RpcFailure {
    /// Connect's word for it, and the status of an answer.
    fn code(&self) -> (&'static str, StatusCode) {
        match &self.0 {
            Failure::Unauthorized(_) => ("unauthenticated", StatusCode::UNAUTHORIZED),
            Failure::Request(_) => ("invalid_argument", StatusCode::BAD_REQUEST),
            Failure::NotFound(_) => ("not_found", StatusCode::NOT_FOUND),
            Failure::Exists(_) => ("already_exists", StatusCode::CONFLICT),
            Failure::Unsupported(_) => ("unimplemented", StatusCode::NOT_IMPLEMENTED),
            Failure::TooLong(_) | Failure::Quota(_) | Failure::Busy(_) => {
                ("resource_exhausted", StatusCode::TOO_MANY_REQUESTS)
            }
            Failure::TooSlow => ("deadline_exceeded", StatusCode::GATEWAY_TIMEOUT),
            Failure::Draining | Failure::Sandbox(_) => {
                ("unavailable", StatusCode::SERVICE_UNAVAILABLE)
            }
            Failure::Mistake => ("internal", StatusCode::INTERNAL_SERVER_ERROR),
        }
    }
}

impl IntoResponse for RpcFailure {
    fn into_response(self) -> Response {
        let (code, status) = self.code();
        let body = json!({ "code": code, "message": self.0.to_string() });
        let mut response = (status, Json(body)).into_response();
        response.extensions_mut().insert(FailureKind(self.0.kind()));
        response
    }
}

/// A call that this server does not serve.
pub async fn unsupported(Path(call): Path<String>) -> RpcFailure {
    let call: String = call.chars().take(64).collect();
    RpcFailure(Failure::Unsupported(format!("`{call}` is not served")))
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
