//! HTTP on a guest's connection: judges each request, and sends those that are allowed on.
//!
//! A request is read, judged and written anew. What could be read in two ways does not get through: there is one
//! `Host`, the length of a body is what was counted, and headers of the connection end here. The guest's side and the
//! host's each speak the version that they agreed on.

mod body;
mod headers;
pub mod http2;
mod place;
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
pub use self::place::{Place, Scheme};
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

/// How long the head of a request may take, and a connection may wait for its next one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The most bytes of a request's head.
const MOST_OF_HEAD: usize = 64 * 1024;

/// The most headers of a request.
const MOST_HEADERS: usize = 200;

/// The most characters of a request that its refusal quotes.
const MOST_OF_WHAT: usize = 200;

type RequestBody = Either<Full<Bytes>, FromGuest>;
type ResponseBody = Either<Full<Bytes>, FromHost>;

/// What a request or a connection is refused with: the status line's end, and a sentence.
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
        _ => "does not take place",
    };
    let why = verdict.as_words().unwrap_or_default();
    (status, format!("{what} {ends}: {why}.\n"))
}

/// Serves the requests of a connection of HTTP/1. `place` is the host that they are for, or `None` on the proxy, where each names its
/// own.
pub async fn serve<I>(
    network: &Arc<Network>,
    io: I,
    scheme: Scheme,
    place: Option<Place>,
    dialled: Option<Dialled>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let gate = Gate::new(network, scheme, place, dialled, 1);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(MOST_OF_HEAD)
        .max_headers(MOST_HEADERS)
        .serve_connection(TokioIo::new(io), Arc::clone(&gate).service())
        .with_upgrades();
    // A guest that breaks off, or does not speak HTTP, hears of it from its own library.
    _ = connection.await;
    let after = locked(&gate.after).take();
    match after {
        None => {}
        Some(After::Tunnel(guest, place, dialled)) => tunnel(network, guest, place, dialled).await,
        Some(After::Switched(guest, host, place)) => {
            if let (Ok(guest), Ok(host)) = tokio::join!(guest, host) {
                let (mut guest, mut host) = (TokioIo::new(guest), TokioIo::new(host));
                if copy_bidirectional(&mut guest, &mut host).await.is_err() {
                    note_end_of_bytes(network, &place);
                }
            }
        }
    }
}

/// Serves what comes after `CONNECT` as if the guest had connected to the host.
async fn tunnel(network: &Arc<Network>, guest: OnUpgrade, place: Place, dialled: Dialled) {
    let Ok(upgraded) = guest.await else { return };
    // The proxy's connections are the only ones on which there is `CONNECT`.
    if let Ok(parts) = upgraded.downcast::<TokioIo<Guest>>() {
        let guest = parts.io.into_inner().with_head(&parts.read_buf);
        Box::pin(connection::serve(network, guest, place, Some(dialled))).await;
    }
}

/// What a connection becomes once its last request is answered.
enum After {
    /// A connection to a host, after `CONNECT`.
    Tunnel(OnUpgrade, Place, Dialled),
    /// Another protocol with the host that the requests went to: the guest's side, and the host's.
    Switched(OnUpgrade, OnUpgrade, Place),
}

/// Judges the requests of one connection.
struct Gate {
    network: Arc<Network>,
    scheme: Scheme,
    /// The host that all requests are for, unless this is the proxy.
    place: Option<Place>,
    upstreams: Upstreams,
    after: Mutex<Option<After>>,
}

impl Gate {
    /// Judges requests for this host, of which the guest has no more than `most` at a time.
    fn new(
        network: &Arc<Network>,
        scheme: Scheme,
        place: Option<Place>,
        dialled: Option<Dialled>,
        most: usize,
    ) -> Arc<Self> {
        Arc::new(Self {
            network: Arc::clone(network),
            scheme,
            upstreams: Upstreams::new(network, most, place.as_ref(), dialled),
            place,
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
            // The guest's next bytes wait, if they have to.
            _ = self.network.overhead.take(http2::COST_OF_REQUEST, now);
        }
        self.network.requests.turn().await;
        let what = format!("{} {}", request.method(), request.uri());
        let is_connect = request.method() == Method::CONNECT;
        let answered = if is_connect {
            self.connect(request).await
        } else {
            self.forward(request).await
        };
        answered.unwrap_or_else(|verdict| {
            let what = what.chars().take(MOST_OF_WHAT).collect::<String>();
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

    /// Connects to a host, on the proxy.
    async fn connect(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Verdict> {
        let authority = request.uri().authority().map(ToString::to_string);
        let authority = authority.and_then(|it| it.parse::<Authority>().ok());
        let Some(Authority {
            host,
            port: Some(port),
        }) = authority.filter(|_| self.place.is_none())
        else {
            return Err(self.misplaced(Refusal::Malformed));
        };
        let place = Place { host, port };
        let access = self.network.access(&place)?;
        let dialled = dial(&self.network, &place, &access, Carries::Other).await?;
        let guest = hyper::upgrade::on(&mut request);
        *locked(&self.after) = Some(After::Tunnel(guest, place, dialled));
        Ok(Response::new(Either::Left(Full::default())))
    }

    /// Sends a request on to its host.
    async fn forward(
        &self,
        mut request: Request<Incoming>,
    ) -> Result<Response<ResponseBody>, Verdict> {
        let guest = hyper::upgrade::on(&mut request);
        let (mut parts, body) = request.into_parts();
        let place = self
            .place_of(&parts)
            .map_err(|refusal| self.misplaced(refusal))?;
        let asked = format!("{} {}", parts.method, target(&parts));
        let network = &self.network;
        let judged = self.judge(&place, &parts);
        let (access, credential) = judged
            .map_err(|refusal| network.note(&place, Some(&asked), Verdict::Refused(refusal)))?;
        let switch = headers::switch(&parts);
        let outgoing = Outgoing {
            network,
            access: &access,
            place: &place,
            scheme: self.scheme,
            switches: switch.is_some(),
        };
        let paced = (parts.version == Version::HTTP_2).then(|| Arc::clone(network));
        let credential = credential.and_then(headers::of_credential);
        headers::of_request(&mut parts, credential, switch);
        let body = FromGuest::new(body, Counted(paced));
        let request = Request::from_parts(parts, Either::Right(body));
        let mut response = self.upstreams.send(&outgoing, request).await?;
        let status = response.status();
        if status == StatusCode::SWITCHING_PROTOCOLS {
            if !outgoing.switches {
                return Err(outgoing.fail(Failure::Broken));
            }
            let host = hyper::upgrade::on(&mut response);
            *locked(&self.after) = Some(After::Switched(guest, host, place));
        }
        headers::of_response(response.headers_mut(), status);
        *response.version_mut() = Version::HTTP_11;
        Ok(response.map(Either::Right))
    }

    /// Notes a request that does not name the host of its connection, or none at all.
    fn misplaced(&self, refusal: Refusal) -> Verdict {
        let verdict = Verdict::Refused(refusal);
        match &self.place {
            Some(place) => _ = self.network.note(place, None, verdict),
            None => self.network.ledger.note("", None, None, verdict),
        }
        verdict
    }

    /// The host that a request is for. Its target and its `Host` must name the same one.
    fn place_of(&self, parts: &Parts) -> Result<Place, Refusal> {
        // HTTP/2 calls it a path, but it may be the URL of another host.
        if !target(parts).starts_with(['/', '*']) {
            return Err(Refusal::Malformed);
        }
        let place = |authority: Authority| Place {
            host: authority.host,
            port: authority.port.unwrap_or(self.scheme.usual_port()),
        };
        let read = |text: &str| text.parse().map(place).map_err(|_| Refusal::Malformed);
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
        let place = match (&self.place, &of_target) {
            (Some(place), _) | (None, Some(place)) => place.clone(),
            (None, None) => return Err(Refusal::Malformed),
        };
        let mut named = of_target.iter().chain(&of_header);
        if named.all(|named| *named == place) {
            Ok(place)
        } else {
            Err(Refusal::Name)
        }
    }

    /// Whether the request is allowed, and what it gets.
    fn judge(
        &self,
        place: &Place,
        parts: &Parts,
    ) -> Result<(Access<'_>, Option<&Credential>), Refusal> {
        let rules = &self.network.shared.start.rules;
        let access = rules.access(&place.host, place.port)?;
        let credential = access.request(parts.method.as_str(), target(parts))?;
        let is_seen = self.scheme == Scheme::Http && access.reach() == Reach::Public;
        match credential {
            Some(_) if is_seen => Err(Refusal::ClearCredential),
            credential => Ok((access, credential)),
        }
    }
}

/// The path of a request with its query.
fn target(parts: &Parts) -> &str {
    parts.uri.path_and_query().map_or("/", PathAndQuery::as_str)
}
