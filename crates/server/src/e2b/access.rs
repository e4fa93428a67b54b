//! Authorizes requests of the data plane, and resolves the sandboxes that requests name.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Json;
use axum::extract::{FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::registry::Sandbox;
use crate::failure::{Failure, FailureKind};
use crate::http::TenantName;
use crate::server::App;
use crate::tenant::tenant_and_id;

/// The ports that E2B's clients use: those of `envd` and of the code interpreter.
const PORTS: [&str; 2] = ["49983", "49999"];

/// The maximum length in bytes of the signed path and user: that of the longest path (`PATH_MAX` in limits.h).
const MAX_SIGNED: usize = 4096;

/// The length in bytes of a signature: a version, then a digest in base64.
const SIGNATURE: usize = "v1_".len() + 43;

/// The message for a paused sandbox and for a missing or wrong token, whether or not the sandbox exists.
const NOT_FOUND: &str = "the sandbox was not found";

/// The query of a signed file URL, for clients that cannot send headers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Signed {
    path: String,
    username: String,
    signature: String,
    signature_expiration: Option<u64>,
}

/// The sandbox that the path names. Handlers extract it as a `Result` so that the request body is read first: a
/// connection with an unread body is closed.
#[derive(Debug)]
pub struct Named(pub Arc<Sandbox>);

impl FromRequestParts<Arc<App>> for Named {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let (tenant, id) = tenant_and_id(parts).await?;
        Ok(Self(app.e2b.find(&tenant, &id)?))
    }
}

/// Middleware of the data plane: resolves the sandbox of a request and checks the sandbox's token.
pub async fn authorize(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let found = if app.draining.has_begun() {
        Err(Failure::Draining.into_response())
    } else {
        sandbox(&app, &request).map_err(denied)
    };
    let refused = match found {
        Ok(sandbox) => {
            TenantName::set(&request, &sandbox.tenant.name);
            match sandbox.tenant.slots.take(request.extensions()) {
                Ok(slot) => {
                    let extensions = request.extensions_mut();
                    extensions.insert(sandbox.tenant.budget.clone());
                    extensions.insert(sandbox);
                    return slot.until_sent(next.run(request).await);
                }
                Err(failure) => failure.into_response(),
            }
        }
        Err(response) => response,
    };
    app.bodies.discard(request.into_body()).await;
    refused
}

/// Returns the sandbox of a request, or the message that denies access to it.
fn sandbox(app: &App, request: &Request) -> Result<Arc<Sandbox>, &'static str> {
    let headers = request.headers();
    let port = text(headers, "e2b-sandbox-port");
    if port.is_some_and(|port| !PORTS.contains(&port)) {
        return Err("the sandbox's port is not open");
    }
    let id = text(headers, "e2b-sandbox-id");
    let signed = Query::<Signed>::try_from_uri(request.uri())
        .unwrap_or_default()
        .0;
    if request.uri().path() == "/files" && !signed.signature.is_empty() {
        // A signature replaces the token.
        let Some(signed) = signed.for_request(request.method()) else {
            return Err(NOT_FOUND);
        };
        // A file URL may omit the sandbox. The signature matches the token of only one sandbox.
        let mut named = match id {
            Some(id) => app.e2b.get(id).into_iter().collect(),
            None => app.e2b.all(),
        };
        named.retain(|sandbox| signed.matches_token(&sandbox.token) && is_open(app, sandbox));
        return named.pop().ok_or(NOT_FOUND);
    }
    let token = text(headers, "x-access-token").or(text(headers, "e2b-traffic-access-token"));
    let found = id.and_then(|id| app.e2b.get(id));
    let found = found.filter(|sandbox| token.is_some_and(|token| is_equal(token, &sandbox.token)));
    found
        .filter(|sandbox| is_open(app, sandbox))
        .ok_or(NOT_FOUND)
}

/// Returns whether the sandbox accepts requests: it is running, and its tenant still has a valid token.
fn is_open(app: &App, sandbox: &Sandbox) -> bool {
    sandbox.is_running() && app.authenticator.admits(&sandbox.tenant.name)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Compares secrets by their digests, so that the time of the comparison reveals nothing about them.
fn is_equal(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

/// Builds the 502 response by whose message clients recognise that a sandbox is gone.
fn denied(message: &str) -> Response {
    let body = json!({ "code": 502, "message": message });
    let mut response = (StatusCode::BAD_GATEWAY, Json(body)).into_response();
    response.extensions_mut().insert(FailureKind("not-found"));
    response
}

impl Signed {
    /// Precomputes what is compared with each sandbox. `None` if the signature is malformed or has expired.
    fn for_request(&self, method: &Method) -> Option<SignedRequest<'_>> {
        let operation = match *method {
            Method::GET | Method::HEAD => "read",
            _ => "write",
        };
        let Self { path, username, .. } = self;
        if path.len() + username.len() > MAX_SIGNED || self.signature.len() != SIGNATURE {
            return None;
        }
        let until = match self.signature_expiration {
            Some(until) => {
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                if until < now.unwrap_or_default().as_secs() {
                    return None;
                }
                format!(":{until}")
            }
            None => String::new(),
        };
        Some(SignedRequest {
            before: Sha256::new_with_prefix(format!("{path}:{operation}:{username}:")),
            until,
            signature: &self.signature,
        })
    }
}

/// The part of a signed request that does not depend on the sandbox, hashed once because there may be many sandboxes.
struct SignedRequest<'a> {
    /// The hash state of the text before the token.
    before: Sha256,
    /// The text after the token.
    until: String,
    signature: &'a str,
}

impl SignedRequest<'_> {
    /// Returns whether the signature was made with this token.
    fn matches_token(&self, token: &str) -> bool {
        let signed = self.before.clone().chain_update(token);
        let signed = signed.chain_update(&self.until).finalize();
        let signature = format!("v1_{}", STANDARD_NO_PAD.encode(signed));
        is_equal(&signature, self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signed(signature: &str) -> Signed {
        Signed {
            path: "/work/a".to_owned(),
            username: "user".to_owned(),
            signature: signature.to_owned(),
            signature_expiration: None,
        }
    }

    #[test]
    fn signature_is_bound_to_token_and_operation() {
        let digest = Sha256::digest("/work/a:read:user:token");
        let signature = format!("v1_{}", STANDARD_NO_PAD.encode(digest));
        let is_valid = |method: &Method, token: &str| {
            let signed = signed(&signature);
            let request = signed.for_request(method);
            request.is_some_and(|request| request.matches_token(token))
        };
        assert!(is_valid(&Method::GET, "token"));
        assert!(is_valid(&Method::HEAD, "token"));
        assert!(!is_valid(&Method::POST, "token"));
        assert!(!is_valid(&Method::GET, "tokens"));
    }

    #[test]
    fn malformed_or_expired_signature_is_rejected_early() {
        for length in [0, SIGNATURE - 1, SIGNATURE + 1, 60_000] {
            let signature = "v1_".to_owned() + &"a".repeat(length.max(3) - 3);
            assert!(signed(&signature).for_request(&Method::GET).is_none());
        }
        let expired = Signed {
            signature_expiration: Some(1),
            ..signed(&"a".repeat(SIGNATURE))
        };
        assert!(expired.for_request(&Method::GET).is_none());
    }
}
