//! The connection to a host that requests of one guest's connection share.

use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{HeaderValue, PROXY_AUTHORIZATION};
use hyper::http::uri::{self, PathAndQuery};
use hyper::{Request, Response, Uri};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::super::PATIENCE;
use super::super::dial::{Carries, Dialled, dial};
use super::super::network::Network;
use super::{Body, Place, Scheme};
use crate::control::Proxy;
use crate::refusal::{Failure, Verdict};
use crate::rules::Access;

/// A stream to a host, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// The connection to the host of the last request, if it can be used again.
pub struct Upstreams(Mutex<State>);

struct State {
    /// A connection that was made before the first request.
    dialled: Option<(Place, Dialled)>,
    upstream: Option<Upstream>,
}

/// A connection to a host. It is ready for a request whenever no other one is under way.
struct Upstream {
    place: Place,
    sender: SendRequest<Body>,
    requests_to: Option<Proxy>,
    task: AbortHandle,
}

/// A guest that is gone needs nothing from the host any more.
impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request that is allowed, and what that depends on.
pub struct Outgoing<'a> {
    pub network: &'a Arc<Network>,
    pub access: &'a Access<'a>,
    pub place: &'a Place,
    pub scheme: Scheme,
}

impl Upstreams {
    /// None yet, but for a connection that was made before.
    pub fn new(place: Option<&Place>, dialled: Option<Dialled>) -> Self {
        Self(Mutex::new(State {
            dialled: place.cloned().zip(dialled),
            upstream: None,
        }))
    }

    /// Sends a request and returns the head of the response.
    pub async fn send(
        &self,
        outgoing: &Outgoing<'_>,
        mut request: Request<Body>,
    ) -> Result<Response<Incoming>, Verdict> {
        let mut state = self.0.lock().await;
        // A connection to another host ends here.
        let kept = state.upstream.take();
        if let Some(upstream) = kept.filter(|it| it.place == *outgoing.place) {
            let again = copy_of_repeatable(&request);
            match upstream.send(request).await {
                Ok((upstream, response)) => {
                    state.upstream = Some(upstream);
                    return Ok(response);
                }
                // The host had closed the connection before it saw the request.
                Err(Some(unsent)) => request = *unsent,
                // Perhaps it did so while the request was on its way.
                Err(None) => request = again.ok_or_else(|| outgoing.fail(Failure::Broken))?,
            }
        }
        let upstream = connect(outgoing, state.dialled.take()).await?;
        match upstream.send(request).await {
            Ok((upstream, response)) => {
                state.upstream = Some(upstream);
                Ok(response)
            }
            Err(_) => Err(outgoing.fail(Failure::Broken)),
        }
    }
}

/// A copy of a request that may be sent twice: one that has no body, and means the same then (RFC 9110, 9.2.2).
fn copy_of_repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    let is_repeatable = request.method().is_idempotent() && request.body().is_end_stream();
    is_repeatable.then(|| {
        let mut copy = Request::new(Body::Left(Full::default()));
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        copy
    })
}

impl Outgoing<'_> {
    /// Notes what went wrong.
    fn fail(&self, failure: Failure) -> Verdict {
        let verdict = Verdict::Failed(failure);
        let Place { host, port } = self.place;
        self.network.note(host, *port, None, verdict);
        verdict
    }
}

impl Upstream {
    /// Sends a request and returns the head of the response. Gives back a request of which nothing was sent.
    async fn send(
        mut self,
        mut request: Request<Body>,
    ) -> Result<(Self, Response<Incoming>), Option<Box<Request<Body>>>> {
        address(&mut request, &self.place, self.requests_to.as_ref());
        if self.sender.ready().await.is_err() {
            return Err(Some(Box::new(request)));
        }
        let sent = self.sender.try_send_request(request).await;
        let response = sent.map_err(|mut error| error.take_message().map(Box::new))?;
        Ok((self, response))
    }
}

/// Writes the target of a request: a path for a host, a whole URL for a proxy.
fn address(request: &mut Request<Body>, place: &Place, proxy: Option<&Proxy>) {
    let path = request.uri().path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    let mut target = uri::Parts::default();
    target.path_and_query = Some(path);
    if let Some(proxy) = proxy {
        target.scheme = Some(uri::Scheme::HTTP);
        target.authority = place.authority(Scheme::Http).parse().ok();
        if let Some(Ok(value)) = proxy.authorization.as_deref().map(HeaderValue::from_str) {
            request.headers_mut().insert(PROXY_AUTHORIZATION, value);
        }
    }
    if let Ok(target) = Uri::from_parts(target) {
        *request.uri_mut() = target;
    }
}

async fn connect(
    outgoing: &Outgoing<'_>,
    dialled: Option<(Place, Dialled)>,
) -> Result<Upstream, Verdict> {
    let Outgoing {
        network,
        access,
        place,
        scheme,
    } = *outgoing;
    let carries = match scheme {
        Scheme::Http => Carries::Http,
        Scheme::Https => Carries::Other,
    };
    let dialled = match dialled {
        Some((own, dialled)) if own == *place => dialled,
        _ => dial(network, &place.host, place.port, access, carries).await?,
    };
    let stream: Box<dyn Stream> = match scheme {
        Scheme::Http => Box::new(dialled.stream),
        Scheme::Https => {
            let connected = network.shared.tls.connect(&place.host, dialled.stream);
            match timeout(PATIENCE, connected).await {
                Ok(Ok(stream)) => Box::new(stream),
                Ok(Err(error)) if is_about_certificate(&error) => {
                    return Err(outgoing.fail(Failure::Certificate));
                }
                Ok(Err(_)) => return Err(outgoing.fail(Failure::Broken)),
                Err(_) => return Err(outgoing.fail(Failure::Slow)),
            }
        }
    };
    let (sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|_| outgoing.fail(Failure::Broken))?;
    let task = tokio::spawn(connection.with_upgrades()).abort_handle();
    Ok(Upstream {
        place: place.clone(),
        sender,
        requests_to: dialled.requests_to,
        task,
    })
}

/// Whether TLS failed because of the host's certificate.
fn is_about_certificate(error: &std::io::Error) -> bool {
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    matches!(inner, Some(rustls::Error::InvalidCertificate(_)))
}
