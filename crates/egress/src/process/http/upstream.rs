//! A client connection to a host or to a proxy.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{HOST, HeaderValue, PROXY_AUTHORIZATION, TE};
use hyper::http::uri::{self, PathAndQuery};
use hyper::{Request, Response, Uri, Version};
use hyper_util::rt::TokioIo;
use rustls::CertificateError;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::super::STEP_TIMEOUT;
use super::super::dial::{Carries, Dialled, dial};
use super::super::network::Network;
use super::super::tls::{HTTP1, HTTP2};
use super::http2 as settings;
use super::http2::OwnTasks;
use super::{Endpoint, RequestBody, Scheme};
use crate::control::Proxy;
use crate::refusal::{Failure, Refusal, Verdict};
use crate::rules::Access;

/// A stream to a host, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection to a host, on which requests can be sent.
pub struct Upstream {
    sender: Sender,
    pub shared: Arc<Shared>,
}

/// The request sender of a connection.
enum Sender {
    /// HTTP/1: one request at a time.
    Http1(http1::SendRequest<RequestBody>),
    /// HTTP/2: concurrent requests.
    Http2(http2::SendRequest<RequestBody>),
}

/// The state that all users of a connection share. Dropping the last reference closes the connection, because a guest
/// that has disconnected needs no more responses.
pub struct Shared {
    pub endpoint: Endpoint,
    scheme: Scheme,
    requests_to: Option<Proxy>,
    tasks: OwnTasks,
    _permit: OwnedSemaphorePermit,
}

/// An allowed request's destination, and the rules and settings that apply to it.
pub struct Outgoing<'a> {
    pub network: &'a Arc<Network>,
    pub access: &'a Access<'a>,
    pub endpoint: &'a Endpoint,
    pub scheme: Scheme,
    /// Whether the request asks for a protocol upgrade, which only HTTP/1 supports.
    pub switches: bool,
}

impl Outgoing<'_> {
    /// Records a failure.
    pub fn fail(&self, failure: Failure) -> Verdict {
        let verdict = match failure {
            Failure::Broken if self.network.bytes.left() == 0 => Verdict::Refused(Refusal::Bytes),
            other => Verdict::Failed(other),
        };
        self.network.note(self.endpoint, None, verdict)
    }
}

impl Upstream {
    pub fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::Http1(sender) => sender.is_closed(),
            Sender::Http2(sender) => sender.is_closed(),
        }
    }

    /// Returns a handle to the same connection for a concurrent request. `None` for HTTP/1.
    pub fn share(&self) -> Option<Self> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => Some(Self {
                sender: Sender::Http2(sender.clone()),
                shared: Arc::clone(&self.shared),
            }),
        }
    }

    /// Sends a request and returns the response head. On failure, returns the request if none of it was sent.
    pub async fn send(
        mut self,
        mut request: Request<RequestBody>,
    ) -> Result<(Self, Response<Incoming>), Option<Box<Request<RequestBody>>>> {
        let addressed = match self.sender {
            Sender::Http1(_) => address_http1(&mut request, &self.shared),
            Sender::Http2(_) => address_http2(&mut request, &self.shared.endpoint),
        };
        if addressed.is_none() {
            return Err(None);
        }
        let sent = match &mut self.sender {
            Sender::Http1(sender) => {
                if sender.ready().await.is_err() {
                    return Err(Some(Box::new(request)));
                }
                sender.try_send_request(request).await
            }
            Sender::Http2(sender) => sender.try_send_request(request).await,
        };
        let response = sent.map_err(|mut error| error.take_message().map(Box::new))?;
        Ok((self, response))
    }
}

fn path_of(request: &Request<RequestBody>) -> PathAndQuery {
    let path = request.uri().path_and_query().cloned();
    path.unwrap_or_else(|| PathAndQuery::from_static("/"))
}

/// Sets the request target: a path for a host, an absolute URL for a proxy.
fn address_http1(request: &mut Request<RequestBody>, shared: &Shared) -> Option<()> {
    let mut target = uri::Parts::default();
    target.path_and_query = Some(path_of(request));
    let name = shared.endpoint.authority(shared.scheme);
    let host = HeaderValue::from_str(&name).ok()?;
    let headers = request.headers_mut();
    headers.insert(HOST, host);
    headers.remove(TE);
    if let Some(proxy) = &shared.requests_to {
        target.scheme = Some(uri::Scheme::HTTP);
        target.authority = Some(name.parse().ok()?);
        if let Some(value) = &proxy.authorization {
            headers.insert(PROXY_AUTHORIZATION, HeaderValue::from_str(value).ok()?);
        }
    }
    *request.uri_mut() = Uri::from_parts(target).ok()?;
    *request.version_mut() = Version::HTTP_11;
    Some(())
}

/// Sets the request target for HTTP/2, which is always over TLS here.
fn address_http2(request: &mut Request<RequestBody>, endpoint: &Endpoint) -> Option<()> {
    let mut target = uri::Parts::default();
    target.path_and_query = Some(path_of(request));
    target.scheme = Some(uri::Scheme::HTTPS);
    target.authority = Some(endpoint.authority(Scheme::Https).parse().ok()?);
    request.headers_mut().remove(HOST);
    *request.uri_mut() = Uri::from_parts(target).ok()?;
    *request.version_mut() = Version::HTTP_2;
    Some(())
}

/// Connects to a host, with the HTTP version that it negotiates.
pub async fn connect(
    outgoing: &Outgoing<'_>,
    dialled: Option<(Endpoint, Dialled)>,
    permit: OwnedSemaphorePermit,
) -> Result<Upstream, Verdict> {
    let (network, endpoint, scheme) = (outgoing.network, outgoing.endpoint, outgoing.scheme);
    let carries = match scheme {
        Scheme::Http => Carries::Http,
        Scheme::Https => Carries::Other,
    };
    let dialled = match dialled {
        Some((own, dialled)) if own == *endpoint => dialled,
        _ => dial(network, endpoint, outgoing.access, carries).await?,
    };
    let mut is_http2 = false;
    let stream: Box<dyn Stream> = match scheme {
        Scheme::Http => Box::new(dialled.stream),
        Scheme::Https => {
            let both = [HTTP2, HTTP1];
            let offer = if outgoing.switches { &both[1..] } else { &both };
            let tls = &network.shared.tls;
            let connected = tls.connect(&endpoint.host, dialled.stream, offer);
            match timeout(STEP_TIMEOUT, connected).await {
                Ok(Ok(stream)) => {
                    is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
                    Box::new(stream)
                }
                Ok(Err(error)) => return Err(outgoing.fail(failure_of(&error))),
                Err(_) => return Err(outgoing.fail(Failure::Slow)),
            }
        }
    };
    let shared = Shared {
        endpoint: endpoint.clone(),
        scheme,
        requests_to: dialled.requests_to,
        tasks: OwnTasks::default(),
        _permit: permit,
    };
    let broken = |_| outgoing.fail(Failure::Broken);
    let stream = TokioIo::new(stream);
    let sender = if is_http2 {
        let handshake = settings::client_builder(&shared.tasks.0).handshake(stream);
        let (sender, connection) = handshake.await.map_err(broken)?;
        shared.tasks.0.spawn(async { _ = connection.await });
        Sender::Http2(sender)
    } else {
        let (sender, connection) = http1::handshake(stream).await.map_err(broken)?;
        shared
            .tasks
            .0
            .spawn(async { _ = connection.with_upgrades().await });
        Sender::Http1(sender)
    };
    Ok(Upstream {
        sender,
        shared: Arc::new(shared),
    })
}

/// Classifies a TLS error.
fn failure_of(error: &std::io::Error) -> Failure {
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    match inner {
        // An error of rustls-webpki, for which rustls has no variant.
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if other.to_string().contains("CaUsedAsEndEntity") =>
        {
            Failure::AuthorityCertificate
        }
        Some(rustls::Error::InvalidCertificate(_)) => Failure::Certificate,
        _ => Failure::Broken,
    }
}
