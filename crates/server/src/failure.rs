//! Why a request has no result, and the status that says so.

use std::sync::Arc;

use axum::extract::Path;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Method, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use sandfork::ErrorKind;
use serde_json::json;

use crate::account::Refusal;
use crate::shortened;

/// Why a request has no result. What a guest does is a result.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// No token, or none that is accepted.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// A page of another site has a browser send it.
    #[error("{0}")]
    OtherSite(&'static str),
    /// The body is not what it must be.
    #[error("{0}")]
    Request(String),
    /// The session has ended, with what it had.
    #[error("{0}")]
    Ended(String),
    /// There is no such thing, or it is another tenant's.
    #[error("{0}")]
    NotFound(String),
    /// The path has other methods.
    #[error("this path has no method {0}: the header `allow` names those that it has")]
    Method(Method),
    /// There is such a thing already.
    #[error("{0}")]
    Exists(String),
    /// What a protocol has and this server does not.
    #[error("{0}")]
    Unsupported(String),
    /// The body is too long.
    #[error("the body is longer than {0} bytes")]
    TooLong(u64),
    /// It would not fit if there were nothing else.
    #[error(
        "the body or the answer takes {needed} bytes of memory, and all of this tenant's may take {most}: make it shorter, \
         or raise `http.bodies` of the server"
    )]
    NeverFits {
        /// The bytes that it takes.
        needed: u64,
        /// The bytes that there are.
        most: u64,
    },
    /// What a client waits for was not kept.
    #[error("{0}")]
    Lost(String),
    /// The client is too slow.
    #[error("the body did not come in time")]
    TooSlow,
    /// The tenant uses as much as it may.
    #[error(transparent)]
    Quota(#[from] Refusal),
    /// The server has too much to do.
    #[error("{0}")]
    Busy(String),
    /// The server is asked to end.
    #[error("the server ends: try another one, or again later")]
    Draining,
    /// No sandbox could be provided.
    #[error("{0}")]
    Sandbox(sandfork::Error),
    /// A mistake of the server.
    #[error("the server made a mistake; its log has more")]
    Mistake,
}

impl From<sandfork::Error> for Failure {
    fn from(error: sandfork::Error) -> Self {
        match error.kind() {
            ErrorKind::Busy => Self::Busy(error.to_string()),
            ErrorKind::Request => Self::Request(error.to_string()),
            ErrorKind::SessionEnded => Self::Ended(error.to_string()),
            _ => Self::Sandbox(error),
        }
    }
}

impl From<PathRejection> for Failure {
    fn from(rejection: PathRejection) -> Self {
        Self::Request(rejection.body_text())
    }
}

impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Self {
        Self::Request(rejection.body_text())
    }
}

/// What a path has. As a `Result`, so that its failure is answered in the form of the protocol.
pub type InPath<T> = Result<Path<T>, PathRejection>;

impl Failure {
    /// The status of the answer.
    pub fn status(&self) -> StatusCode {
        self.answer().0
    }

    /// A word for it, for programs and metrics.
    pub fn kind(&self) -> &'static str {
        self.answer().1
    }

    fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unauthorized(_) => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::OtherSite(_) => (StatusCode::FORBIDDEN, "cross-site"),
            Self::Request(_) => (StatusCode::UNPROCESSABLE_ENTITY, "request"),
            Self::NotFound(_) | Self::Ended(_) => (StatusCode::NOT_FOUND, "not-found"),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed"),
            Self::Exists(_) => (StatusCode::CONFLICT, "exists"),
            Self::Unsupported(_) => (StatusCode::NOT_IMPLEMENTED, "unsupported"),
            Self::TooLong(_) | Self::NeverFits { .. } => {
                (StatusCode::PAYLOAD_TOO_LARGE, "too-large")
            }
            Self::Lost(_) => (StatusCode::INTERNAL_SERVER_ERROR, "lost"),
            Self::TooSlow => (StatusCode::REQUEST_TIMEOUT, "too-slow"),
            Self::Quota(_) => (StatusCode::TOO_MANY_REQUESTS, "quota"),
            Self::Busy(_) => (StatusCode::TOO_MANY_REQUESTS, "busy"),
            Self::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
            Self::Sandbox(_) => (StatusCode::SERVICE_UNAVAILABLE, "sandbox"),
            Self::Mistake => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }

    /// The sentence for clients. The middle of one that quotes a long request is left out: no memory is held for it.
    pub fn message(&self) -> String {
        const MOST: usize = 2 << 10;
        shortened(self.to_string().as_bytes(), MOST)
    }

    /// Whether another attempt may succeed.
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Quota(_) | Self::Busy(_) | Self::Draining)
    }
}

/// The answer of Sandfork's own API.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.own_answer();
        response.extensions_mut().insert(FailureKind(self.kind()));
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

impl Failure {
    /// The answer of Sandfork's own API, without what tells of the failure itself.
    pub fn own_answer(&self) -> Response {
        let body = json!({ "error": { "kind": self.kind(), "message": self.message() } });
        let mut response = (self.status(), Json(body)).into_response();
        let headers = response.headers_mut();
        if self.is_overload() {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if matches!(self, Self::Unauthorized(_)) {
            headers.insert(
                WWW_AUTHENTICATE,
                HeaderValue::from_static("Bearer, Basic realm=\"sandfork\""),
            );
        }
        response
    }
}

/// How a protocol answers failures.
type Form = fn(&Failure) -> Response;

/// Has routes answer their failures in this form.
pub fn answer_in<S: Clone + Send + Sync + 'static>(form: Form, routes: Router<S>) -> Router<S> {
    let formed = move |response: Response| async move { in_form(form, response) };
    routes.layer(map_response(formed))
}

/// Answers in this form, where the response is a failure that has none yet.
pub fn in_form(form: Form, mut response: Response) -> Response {
    let Some(failure) = response.extensions_mut().remove::<Arc<Failure>>() else {
        return response;
    };
    let mut formed = form(&failure);
    let kind = FailureKind(failure.kind());
    formed.extensions_mut().insert(kind);
    formed
}

/// Why the request of a response failed, for the log.
#[derive(Clone, Copy, Debug)]
pub struct FailureKind(pub &'static str);

#[cfg(test)]
mod tests {
    use axum::body::HttpBody;

    use super::*;

    #[test]
    fn an_answer_quotes_the_beginning_and_the_end_of_a_long_request() {
        let short = Failure::Request("`é` is no field".to_owned());
        assert_eq!(short.message(), "`é` is no field");
        let long = Failure::Request(format!("`{}` is no field", "é".repeat(1 << 20)));
        let message = long.message();
        assert!(message.starts_with("`éé") && message.ends_with("éé` is no field"));
        let length = long.into_response().body().size_hint().exact();
        assert!(length.is_some_and(|length| length < 8 << 10), "{length:?}");
    }
}
