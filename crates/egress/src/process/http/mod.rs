//! Proxies HTTP on a guest's connection: checks each request against the rules, and forwards those that are allowed.
//!
//! A request is parsed, checked and encoded anew, so that nothing ambiguous is forwarded: there is exactly one `Host`,
//! the body has the length that was counted, and hop-by-hop headers are dropped. The two connections negotiate their
//! protocol versions independently.

mod body;
mod endpoint;
mod headers;
pub mod http2;
mod upstream;
mod upstreams;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper::upgrade::OnUpgrade;
use hyper::{Method, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional};
use tokio::time::Instant;

use self::body::{Counted, FromGuest, FromHost};
pub use self::endpoint::{Endpoint, Scheme};
use self::upstream::Outgoing;
use self::upstreams::Upstreams;
use super::connection::{self, note_end_of_bytes};
use super::dial::{Carries, Dialled, dial};
use super::head::Guest;
use super::locked;
use super::network::Network;
use crate::address::Reach;
use crate::host::Authority;
use crate::refusal::{Failure, Refusal, Verdict};
use crate::rules::{Access, Credential};

/// How long a request head may take, and how long a connection may be idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The maximum size in bytes of a request head.
const MAX_HEAD: usize = 64 * 1024;

/// The maximum number of headers of a request.
const MAX_HEADERS: usize = 200;

/// The maximum number of characters of a request that its refusal quotes.
const MAX_QUOTED: usize = 200;

type RequestBody = Either<Full<Bytes>, FromGuest>;
type ResponseBody = Either<Full<Bytes>, FromHost>;

/// Returns the HTTP status and the text for a refusal or failure.
pub fn explain(verdict: Verdict, what: &str) -> (StatusCode, String) {
    let status = match verdict {
        Verdict::Refused(Refusal::Name) => StatusCode::MISDIRECTED_REQUEST,
        Verdict::Refused(Refusal::Malformed) => StatusCode::BAD_REQUEST,
        Verdict::Refused(_) => StatusCode::FORBIDDEN,
        Verdict::Failed(Failure::Slow) => StatusCode::GATEWAY_TIMEOUT,
        _ => StatusCode::BAD_GATEWAY,
    };
    let ends = match verdict {
        Verdict::Refused(_) => "is refused by the sandbox",
        _ => "failed",
    };
    let why = verdict.as_words().unwrap_or_default();
    (status, format!("{what} {ends}: {why}.\n"))
}

/// Serves the requests of an HTTP/1 connection. `endpoint` is the host of the connection, or `None` on the proxy, where
/// each request names its host.
pub async fn serve<I>(
    network: &Arc<Network>,
    io: I,
    scheme: Scheme,
    endpoint: Option<Endpoint>,
    dialled: Option<Dialled>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let gate = Gate::new(network, scheme, endpoint, dialled, 1);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .serve_connection(TokioIo::new(io), Arc::clone(&gate).service())
        .with_upgrades();
    // A guest that disconnects or does not speak HTTP gets the error from its own library.
    _ = connection.await;
    let after = locked(&gate.after).take();
    match after {
        None => {}
        Some(After::Tunnel(guest, endpoint, dialled)) => {
            tunnel(network, guest, endpoint, dialled).await;
        }
        Some(After::Switched(guest, host, endpoint)) => {
            if let (Ok(guest), Ok(host)) = tokio::join!(guest, host) {
                let (mut guest, mut host) = (TokioIo::new(guest), TokioIo::new(host));
                if copy_bidirectional(&mut guest, &mut host).await.is_err() {
                    note_end_of_bytes(network, &endpoint);
                }
            }
        }
    }
}

/// Serves the stream after `CONNECT` as if the guest had connected to the host directly.
async fn tunnel(network: &Arc<Network>, guest: OnUpgrade, endpoint: Endpoint, dialled: Dialled) {
    let Ok(upgraded) = guest.await else { return };
    // Only connections to the proxy accept `CONNECT`, and their stream is a `Guest`.
    if let Ok(parts) = upgraded.downcast::<TokioIo<Guest>>() {
        let guest = parts.io.into_inner().with_head(&parts.read_buf);
        Box::pin(connection::serve(network, guest, endpoint, Some(dialled))).await;
    }
}

/// The state of a connection after its last request.
enum After {
    /// A tunnel to a host, after `CONNECT`.
    Tunnel(OnUpgrade, Endpoint, Dialled),
    /// An upgraded protocol: the guest's stream and the host's.
    Switched(OnUpgrade, OnUpgrade, Endpoint),
}

/// Checks and forwards the requests of one connection.
struct Gate {
    network: Arc<Network>,
    scheme: Scheme,
    /// The host of the connection; `None` on the proxy.
    endpoint: Option<Endpoint>,
    upstreams: Upstreams,
    after: Mutex<Option<After>>,
}

impl Gate {
    /// Creates the gate of a connection on which the guest sends at most `max_requests` concurrent requests.
    fn new(
        network: &Arc<Network>,
        scheme: Scheme,
        endpoint: Option<Endpoint>,
        dialled: Option<Dialled>,
        max_requests: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            network: Arc::clone(network),
            scheme,
            upstreams: Upstreams::new(network, max_requests, endpoint.as_ref(), dialled),
            endpoint,
            after: Mutex::new(None),
        })
    }

    fn service(
        self: Arc<Self>,
    ) -> impl Service<
        Request<Incoming>,
        Response = Response<ResponseBody>,
        Error = Infallible,
        Future = impl Future<Output = Result<Response<ResponseBody>, Infallible>> + Send,
    > {
        service_fn(move |request| {
            let gate = Arc::clone(&self);
            async move { Ok(gate.answer(request).await) }
        })
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        if request.version() == Version::HTTP_2 {
            let now = Instant::now();
            // If the rate is exceeded, reading the guest's next bytes is delayed.
            _ = self.network.overhead.take(http2::REQUEST_COST, now);
        }
        self.network.requests.acquire().await;
        let what = format!("{} {}", request.method(), request.uri());
        let is_connect = request.method() == Method::CONNECT;
        let answered = if is_connect {
            self.connect(request).await
        } else {
            self.forward(request).await
        };
        answered.unwrap_or_else(|verdict| {
            let what = what.chars().take(MAX_QUOTED).collect::<String>();
            let (status, text) = explain(verdict, &what);
            let mut response = Response::new(Either::Left(Full::from(text)));
            *response.status_mut() = status;
            let headers = response.headers_mut();
            let kind = HeaderValue::from_static("text/plain; charset=utf-8");
            headers.insert(CONTENT_TYPE, kind);
            if is_connect || verdict == Verdict::Refused(Refusal::Malformed) {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            response
        })
    }

    /// Handles `CONNECT` on the proxy.
    async fn connect(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Verdict> {
        let authority = request.uri().authority().map(ToString::to_string);
        let authority = authority.and_then(|it| it.parse::<Authority>().ok());
        let Some(Authority {
            host,
            port: Some(port),
        }) = authority.filter(|_| self.endpoint.is_none())
        else {
            return Err(self.refuse(Refusal::Malformed));
        };
        let endpoint = Endpoint { host, port };
        let access = self.network.access(&endpoint)?;
        let dialled = dial(&self.network, &endpoint, &access, Carries::Other).await?;
        let guest = hyper::upgrade::on(&mut request);
        *locked(&self.after) = Some(After::Tunnel(guest, endpoint, dialled));
        Ok(Response::new(Either::Left(Full::default())))
    }

    /// Forwards a request to its host.
    async fn forward(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Verdict> {
        let guest = hyper::upgrade::on(&mut request);
        let (mut parts, body) = request.into_parts();
        let endpoint = self
            .endpoint_of(&parts)
            .map_err(|refusal| self.refuse(refusal))?;
        let asked = format!("{} {}", parts.method, target(&parts));
        let network = &self.network;
        let checked = self.check(&endpoint, &parts);
        let (access, credential) = checked
            .map_err(|refusal| network.note(&endpoint, Some(&asked), Verdict::Refused(refusal)))?;
        let switch = headers::requested_upgrade(&parts);
        let outgoing = Outgoing {
            network,
            access: &access,
            endpoint: &endpoint,
            scheme: self.scheme,
            switches: switch.is_some(),
        };
        let paced = (parts.version == Version::HTTP_2).then(|| Arc::clone(network));
        let credential = credential.and_then(headers::credential_header);
        headers::prepare_request(&mut parts, credential, switch);
        let body = FromGuest::new(body, Counted(paced));
        let request = Request::from_parts(parts, Either::Right(body));
        let mut response = self.upstreams.send(&outgoing, request).await?;
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            if !outgoing.switches {
                return Err(outgoing.fail(Failure::Broken));
            }
            let host = hyper::upgrade::on(&mut response);
            *locked(&self.after) = Some(After::Switched(guest, host, endpoint));
        }
        headers::prepare_response(response.headers_mut(), status);
        *response.version_mut() = Version::HTTP_11;
        Ok(response.map(Either::Right))
    }

    /// Records a refused request whose host is unknown or differs from the host of the connection.
    fn refuse(&self, refusal: Refusal) -> Verdict {
        let verdict = Verdict::Refused(refusal);
        match &self.endpoint {
            Some(endpoint) => _ = self.network.note(endpoint, None, verdict),
            None => self.network.ledger.note("", None, None, verdict),
        }
        verdict
    }

    /// Returns the host that a request is for. Its target and its `Host` header must agree.
    fn endpoint_of(&self, parts: &Parts) -> Result<Endpoint, Refusal> {
        // In HTTP/2, `:path` may contain the URL of another host.
        if !target(parts).starts_with(['/', '*']) {
            return Err(Refusal::Malformed);
        }
        let endpoint = |authority: Authority| Endpoint {
            host: authority.host,
            port: authority.port.unwrap_or(self.scheme.usual_port()),
        };
        let read = |text: &str| text.parse().map(endpoint).map_err(|_| Refusal::Malformed);
        let is_plain = parts
            .uri
            .scheme_str()
            .is_none_or(|scheme| match self.scheme {
                Scheme::Http => scheme == "http",
                Scheme::Https => scheme == "https",
            });
        if !is_plain {
            return Err(Refusal::Malformed);
        }
        let of_target = parts
            .uri
            .authority()
            .map(|authority| read(authority.as_str()));
        let of_target = of_target.transpose()?;
        let mut hosts = parts.headers.get_all(HOST).iter();
        let of_header = match (hosts.next(), hosts.next()) {
            (Some(host), None) => Some(read(host.to_str().map_err(|_| Refusal::Malformed)?)?),
            (None, _) if parts.version == Version::HTTP_10 => None,
            (None, _) if parts.version == Version::HTTP_2 && of_target.is_some() => None,
            _ => return Err(Refusal::Malformed),
        };
        let endpoint = match (&self.endpoint, &of_target) {
            (Some(endpoint), _) | (None, Some(endpoint)) => endpoint.clone(),
            (None, None) => return Err(Refusal::Malformed),
        };
        let mut named = of_target.iter().chain(&of_header);
        if named.all(|named| *named == endpoint) {
            Ok(endpoint)
        } else {
            Err(Refusal::Name)
        }
    }

    /// Checks a request against the rules. Returns the credential that it receives.
    fn check(
        &self,
        endpoint: &Endpoint,
        parts: &Parts,
    ) -> Result<(Access<'_>, Option<&Credential>), Refusal> {
        let rules = &self.network.shared.start.rules;
        let access = rules.access(&endpoint.host, endpoint.port)?;
        let credential = access.request(parts.method.as_str(), target(parts))?;
        let is_seen = self.scheme == Scheme::Http && access.reach() == Reach::Public;
        match credential {
            Some(_) if is_seen => Err(Refusal::ClearCredential),
            credential => Ok((access, credential)),
        }
    }
}

/// Returns the path and query of a request.
fn target(parts: &Parts) -> &str {
    parts.uri.path_and_query().map_or("/", PathAndQuery::as_str)
}
