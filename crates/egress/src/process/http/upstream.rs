//! A connection to a host that takes requests.

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

use super::super::PATIENCE;
use super::super::dial::{Carries, Dialled, dial};
use super::super::network::Network;
use super::super::tls::{HTTP1, HTTP2};
use super::http2 as settings;
use super::http2::OwnTasks;
use super::{Place, RequestBody, Scheme};
use crate::control::Proxy;
use crate::refusal::{Failure, Refusal, Verdict};
use crate::rules::Access;

/// A stream to a host, with or without TLS.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// A connection to a host.
pub struct Upstream {
    sender: Sender,
    pub held: Arc<Held>,
}

/// Takes requests.
enum Sender {
    /// One at a time.
    One(http1::SendRequest<RequestBody>),
    /// Many at a time.
    Many(http2::SendRequest<RequestBody>),
}

/// What all who use a connection share. Its end is the connection's: a guest that is gone needs nothing from the host.
pub struct Held {
    pub place: Place,
    scheme: Scheme,
    requests_to: Option<Proxy>,
    tasks: OwnTasks,
    _room: OwnedSemaphorePermit,
}

/// A request that is allowed, and what that depends on.
pub struct Outgoing<'a> {
    pub network: &'a Arc<Network>,
    pub access: &'a Access<'a>,
    pub place: &'a Place,
    pub scheme: Scheme,
    /// Whether it asks to switch to another protocol, as only HTTP/1 can.
    pub switches: bool,
}

impl Outgoing<'_> {
    /// Notes what went wrong.
    pub fn fail(&self, failure: Failure) -> Verdict {
        let verdict = match failure {
            Failure::Broken if self.network.bytes.left() == 0 => Verdict::Refused(Refusal::Bytes),
            other => Verdict::Failed(other),
        };
        self.network.note(self.place, None, verdict)
    }
}

impl Upstream {
    pub fn is_closed(&self) -> bool {
        match &self.sender {
            Sender::One(sender) => sender.is_closed(),
            Sender::Many(sender) => sender.is_closed(),
        }
    }

    /// The same connection for another request, if it takes many at a time.
    pub fn share(&self) -> Option<Self> {
        match &self.sender {
            Sender::One(_) => None,
            Sender::Many(sender) => Some(Self {
                sender: Sender::Many(sender.clone()),
                held: Arc::clone(&self.held),
            }),
        }
    }

    /// Sends a request and returns the head of the response. Gives back a request of which nothing was sent.
    pub async fn send(
        mut self,
        mut request: Request<RequestBody>,
    ) -> Result<(Self, Response<Incoming>), Option<Box<Request<RequestBody>>>> {
        let addressed = match self.sender {
            Sender::One(_) => address_http1(&mut request, &self.held),
            Sender::Many(_) => address_http2(&mut request, &self.held.place),
        };
        if addressed.is_none() {
            return Err(None);
        }
        let sent = match &mut self.sender {
            Sender::One(sender) => {
                if sender.ready().await.is_err() {
                    return Err(Some(Box::new(request)));
                }
                sender.try_send_request(request).await
            }
            Sender::Many(sender) => sender.try_send_request(request).await,
        };
        let response = sent.map_err(|mut error| error.take_message().map(Box::new))?;
        Ok((self, response))
    }
}

fn path_of(request: &Request<RequestBody>) -> PathAndQuery {
    let path = request.uri().path_and_query().cloned();
    path.unwrap_or_else(|| PathAndQuery::from_static("/"))
}

/// Writes the target of a request: a path for a host, a whole URL for a proxy.
fn address_http1(request: &mut Request<RequestBody>, held: &Held) -> Option<()> {
    let mut target = uri::Parts::default();
    target.path_and_query = Some(path_of(request));
    let name = held.place.authority(held.scheme);
    let host = HeaderValue::from_str(&name).ok()?;
    let headers = request.headers_mut();
    headers.insert(HOST, host);
    headers.remove(TE);
    if let Some(proxy) = &held.requests_to {
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

/// Writes the target of a request as HTTP/2 has it, which is over TLS here.
fn address_http2(request: &mut Request<RequestBody>, place: &Place) -> Option<()> {
    let mut target = uri::Parts::default();
    target.path_and_query = Some(path_of(request));
    target.scheme = Some(uri::Scheme::HTTPS);
    target.authority = Some(place.authority(Scheme::Https).parse().ok()?);
    request.headers_mut().remove(HOST);
    *request.uri_mut() = Uri::from_parts(target).ok()?;
    *request.version_mut() = Version::HTTP_2;
    Some(())
}

/// Connects to a host, and speaks what it chooses.
pub async fn connect(
    outgoing: &Outgoing<'_>,
    dialled: Option<(Place, Dialled)>,
    room: OwnedSemaphorePermit,
) -> Result<Upstream, Verdict> {
    let (network, place, scheme) = (outgoing.network, outgoing.place, outgoing.scheme);
    let carries = match scheme {
        Scheme::Http => Carries::Http,
        Scheme::Https => Carries::Other,
    };
    let dialled = match dialled {
        Some((own, dialled)) if own == *place => dialled,
        _ => dial(network, place, outgoing.access, carries).await?,
    };
    let mut is_http2 = false;
    let stream: Box<dyn Stream> = match scheme {
        Scheme::Http => Box::new(dialled.stream),
        Scheme::Https => {
            let both = [HTTP2, HTTP1];
            let offer = if outgoing.switches { &both[1..] } else { &both };
            let tls = &network.shared.tls;
            let connected = tls.connect(&place.host, dialled.stream, offer);
            match timeout(PATIENCE, connected).await {
                Ok(Ok(stream)) => {
                    is_http2 = stream.get_ref().1.alpn_protocol() == Some(HTTP2);
                    Box::new(stream)
                }
                Ok(Err(error)) => return Err(outgoing.fail(failure_of(&error))),
                Err(_) => return Err(outgoing.fail(Failure::Slow)),
            }
        }
    };
    let held = Held {
        place: place.clone(),
        scheme,
        requests_to: dialled.requests_to,
        tasks: OwnTasks::default(),
        _room: room,
    };
    let broken = |_| outgoing.fail(Failure::Broken);
    let stream = TokioIo::new(stream);
    let sender = if is_http2 {
        let handshake = settings::to_host(&held.tasks.0).handshake(stream);
        let (sender, connection) = handshake.await.map_err(broken)?;
        held.tasks.0.spawn(async { _ = connection.await });
        Sender::Many(sender)
    } else {
        let (sender, connection) = http1::handshake(stream).await.map_err(broken)?;
        held.tasks
            .0
            .spawn(async { _ = connection.with_upgrades().await });
        Sender::One(sender)
    };
    Ok(Upstream {
        sender,
        held: Arc::new(held),
    })
}

/// Why TLS failed.
fn failure_of(error: &std::io::Error) -> Failure {
    let inner = error.get_ref().and_then(|it| it.downcast_ref());
    match inner {
        // The error of a dependency of rustls, which has no word of its own for it.
        Some(rustls::Error::InvalidCertificate(CertificateError::Other(other)))
            if other.to_string().contains("CaUsedAsEndEntity") =>
        {
            Failure::AuthorityCertificate
        }
        Some(rustls::Error::InvalidCertificate(_)) => Failure::Certificate,
        _ => Failure::Broken,
    }
}
