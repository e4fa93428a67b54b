//! Which tenant a request of the control plane is of, and which sandbox one of the data plane is for.

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

/// The ports that E2B's clients name: those of `envd` and of the code interpreter.
const PORTS: [&str; 2] = ["49983", "49999"];

/// Bytes of what is signed: the longest path (`PATH_MAX` of limits.h).
const MOST_SIGNED: usize = 4096;

/// Bytes of a signature: its version, and a digest in base64.
const SIGNATURE: usize = "v1_".len() + 43;

/// What a client hears of a sandbox that is paused, and one without the token of a sandbox, whether there is such a sandbox
/// or not.
const GONE: &str = "the sandbox was not found";

/// What a URL of a file may have, for clients without headers.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Signed {
    path: String,
    username: String,
    signature: String,
    signature_expiration: Option<u64>,
}

/// The sandbox of the tenant that a path names. As a `Result` it leaves the body of the request to be read first: a
/// connection on which some is left is closed.
#[derive(Debug)]
pub struct Named(pub Arc<Sandbox>);

impl FromRequestParts<Arc<App>> for Named {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Self, Failure> {
        let (tenant, id) = tenant_and_id(parts).await?;
        Ok(Self(app.e2b.find(&tenant, &id)?))
    }
}

/// Finds the sandbox of a request and checks the token of the sandbox. A request without both goes no further.
pub async fn reach(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    let found = if app.draining.has_begun() {
        Err(Failure::Draining.into_response())
    } else {
        sandbox(&app, &request).map_err(unavailable)
    };
    let refused = match found {
        Ok(sandbox) => {
            TenantName::tell(&request, &sandbox.tenant.name);
            match sandbox.tenant.places.take(request.extensions()) {
                Ok(place) => {
                    let extensions = request.extensions_mut();
                    extensions.insert(sandbox.tenant.budget.clone());
                    extensions.insert(sandbox);
                    return place.until_sent(next.run(request).await);
                }
                Err(failure) => failure.into_response(),
            }
        }
        Err(response) => response,
    };
    app.bodies.discard(request.into_body()).await;
    refused
}

/// The sandbox of a request, or what to tell a client without it.
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
        // For a client that has no token.
        let Some(signed) = signed.for_request(request.method()) else {
            return Err(GONE);
        };
        // The URL of a file names no sandbox: its signature is of one only.
        let mut named = match id {
            Some(id) => app.e2b.get(id).into_iter().collect(),
            None => app.e2b.all(),
        };
        named.retain(|sandbox| signed.is_of(&sandbox.token) && is_open(app, sandbox));
        return named.pop().ok_or(GONE);
    }
    let token = text(headers, "x-access-token").or(text(headers, "e2b-traffic-access-token"));
    let found = id.and_then(|id| app.e2b.get(id));
    let found = found.filter(|sandbox| token.is_some_and(|token| is_equal(token, &sandbox.token)));
    found.filter(|sandbox| is_open(app, sandbox)).ok_or(GONE)
}

/// Whether its own token opens it: not after the last token of its tenant was taken away.
fn is_open(app: &App, sandbox: &Sandbox) -> bool {
    sandbox.is_running() && app.authenticator.admits(&sandbox.tenant.name)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// Compares secrets in a time that says nothing of them.
fn is_equal(one: &str, other: &str) -> bool {
    Sha256::digest(one) == Sha256::digest(other)
}

/// Clients ask with 502 whether the sandbox is gone, and read it in the message.
fn unavailable(message: &str) -> Response {
    let body = json!({ "code": 502, "message": message });
    let mut response = (StatusCode::BAD_GATEWAY, Json(body)).into_response();
    response.extensions_mut().insert(FailureKind("not-found"));
    response
}

impl Signed {
    /// What each sandbox is compared with. `None` if the signature cannot be of any, or has expired.
    fn for_request(&self, method: &Method) -> Option<SignedRequest<'_>> {
        let operation = match *method {
            Method::GET | Method::HEAD => "read",
            _ => "write",
        };
        let Self { path, username, .. } = self;
        if path.len() + username.len() > MOST_SIGNED || self.signature.len() != SIGNATURE {
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

/// A request with a signature, as far as it is the same for each sandbox: there may be many to ask.
struct SignedRequest<'a> {
    /// The digest of what stands before the token.
    before: Sha256,
    /// What stands after it.
    until: String,
    signature: &'a str,
}

impl SignedRequest<'_> {
    /// Whether the signature is that of a sandbox with this token.
    fn is_of(&self, token: &str) -> bool {
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
    fn a_signature_is_of_one_token_and_one_operation() {
        let digest = Sha256::digest("/work/a:read:user:token");
        let signature = format!("v1_{}", STANDARD_NO_PAD.encode(digest));
        let is_of = |method: &Method, token: &str| {
            let signed = signed(&signature);
            let request = signed.for_request(method);
            request.is_some_and(|request| request.is_of(token))
        };
        assert!(is_of(&Method::GET, "token"));
        assert!(is_of(&Method::HEAD, "token"));
        assert!(!is_of(&Method::POST, "token"));
        assert!(!is_of(&Method::GET, "tokens"));
    }

    #[test]
    fn what_is_no_signature_is_compared_with_no_sandbox() {
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
