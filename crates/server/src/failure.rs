//! The reasons why a request fails, and their HTTP statuses and responses.

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

/// The reason why a request has no result. Every end of guest code is a result, not a failure.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The token is missing or invalid.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// A browser sent the request on behalf of a page of another site.
    #[error("{0}")]
    CrossSite(&'static str),
    /// The request is invalid.
    #[error("{0}")]
    Request(String),
    /// The session has ended, and its state is lost.
    #[error("{0}")]
    Ended(String),
    /// The resource does not exist, or belongs to another tenant.
    #[error("{0}")]
    NotFound(String),
    /// The path does not support the method.
    #[error("this path does not support {0}: see the `allow` header")]
    Method(Method),
    /// The resource already exists.
    #[error("{0}")]
    Exists(String),
    /// A feature of the protocol that this server does not support.
    #[error("{0}")]
    Unsupported(String),
    /// The body exceeds the limit of a single body.
    #[error("the body is longer than {0} bytes")]
    TooLong(u64),
    /// The body or the response exceeds the tenant's whole budget.
    #[error(
        "the body or the response needs {needed} bytes of memory, but this tenant's limit is {most}: make it shorter, \
         or raise `http.bodies` in the server's configuration"
    )]
    NeverFits {
        /// The bytes that are needed.
        needed: u64,
        /// The bytes of the whole budget.
        most: u64,
    },
    /// Data that the client requested was lost.
    #[error("{0}")]
    Lost(String),
    /// The client sends or reads too slowly.
    #[error("the client sent or read data too slowly")]
    TooSlow,
    /// A quota of the tenant is used up.
    #[error(transparent)]
    Quota(#[from] Refusal),
    /// The server is overloaded.
    #[error("{0}")]
    Busy(String),
    /// The server is shutting down.
    #[error("the server is shutting down: use another server or retry later")]
    Draining,
    /// No sandbox could be provided.
    #[error("{0}")]
    Sandbox(sandfork::Error),
    /// A bug in the server.
    #[error("internal server error: see the server's log")]
    Internal,
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

/// The parameters of a path, as a `Result`, so that a failure is rendered in the form of the protocol.
pub type InPath<T> = Result<Path<T>, PathRejection>;

impl Failure {
    /// Returns the HTTP status.
    pub fn status(&self) -> StatusCode {
        self.answer().0
    }

    /// Returns a keyword for programs and metrics.
    pub fn kind(&self) -> &'static str {
        self.answer().1
    }

    fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Unauthorized(_) => (StatusCode::UNAUTHORIZED, "unauthorized"),
            Self::CrossSite(_) => (StatusCode::FORBIDDEN, "cross-site"),
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
            Self::Internal => (StatusCode::INTERNAL_SERVER_ERROR, "internal"),
        }
    }

    /// Returns the message for clients. Its middle is omitted if it quotes a long request, because no memory is
    /// reserved for it.
    pub fn message(&self) -> String {
        const MAX_CHARACTERS: usize = 2 << 10;
        shortened(self.to_string().as_bytes(), MAX_CHARACTERS)
    }

    /// Returns whether a retry may succeed.
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Quota(_) | Self::Busy(_) | Self::Draining)
    }
}

/// Renders the failure in the form of Sandfork's own API.
impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        let mut response = self.default_response();
        response.extensions_mut().insert(FailureKind(self.kind()));
        response.extensions_mut().insert(Arc::new(self));
        response
    }
}

impl Failure {
    /// Renders the failure in the form of Sandfork's own API, without the extensions that mark the response as a
    /// failure.
    pub fn default_response(&self) -> Response {
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

/// Renders a failure in the form of a protocol.
type Renderer = fn(&Failure) -> Response;

/// Adds a layer that renders the failures of routes in this form.
pub fn render_failures<S: Clone + Send + Sync + 'static>(
    renderer: Renderer,
    routes: Router<S>,
) -> Router<S> {
    let formed = move |response: Response| async move { rendered_by(renderer, response) };
    routes.layer(map_response(formed))
}

/// Renders a response in this form, if it is a failure that has not been rendered yet.
pub fn rendered_by(renderer: Renderer, mut response: Response) -> Response {
    let Some(failure) = response.extensions_mut().remove::<Arc<Failure>>() else {
        return response;
    };
    let mut formed = renderer(&failure);
    let kind = FailureKind(failure.kind());
    formed.extensions_mut().insert(kind);
    formed
}

/// The keyword of a failure, for the log.
#[derive(Clone, Copy, Debug)]
pub struct FailureKind(pub &'static str);

#[cfg(test)]
mod tests {
    use axum::body::HttpBody;

    use super::*;

    #[test]
    fn message_omits_the_middle_of_a_long_quotation() {
        let short = Failure::Request("`é` is no field".to_owned());
        assert_eq!(short.message(), "`é` is no field");
        let long = Failure::Request(format!("`{}` is no field", "é".repeat(1 << 20)));
        let message = long.message();
        assert!(message.starts_with("`éé") && message.ends_with("éé` is no field"));
        let length = long.into_response().body().size_hint().exact();
        assert!(length.is_some_and(|length| length < 8 << 10), "{length:?}");
    }
}
