//! The pool of connections to hosts, shared by the requests of one guest connection.
//!
//! HTTP/2 requests share a connection. An HTTP/1 request has a connection to itself until its response ends, so that no
//! request waits for a response that the guest does not read.

use std::sync::{Arc, Mutex};

use hyper::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::connection::note_end_of_bytes;
use super::super::dial::Dialled;
use super::super::locked;
use super::super::network::Network;
use super::body::FromHost;
use super::upstream::{Outgoing, Upstream, connect};
use super::{Endpoint, RequestBody};
use crate::refusal::{Failure, Verdict};

/// The connection pool of one guest connection.
pub struct Upstreams(Arc<Pool>);

struct Pool {
    network: Arc<Network>,
    /// Permits for concurrent requests.
    permits: Arc<Semaphore>,
    /// Permit for the first connection to a host, which the guest's own connection already pays for. Each further
    /// connection counts towards the policy's limit.
    first: Arc<Semaphore>,
    /// A connection that was opened before the first request. The lock is held while another connection is opened.
    dialled: tokio::sync::Mutex<Option<(Endpoint, Dialled)>>,
    idle: Mutex<Vec<Upstream>>,
}

/// The use of a connection by one response.
pub struct Lease {
    pool: Arc<Pool>,
    upstream: Option<Upstream>,
    _permit: OwnedSemaphorePermit,
}

impl Lease {
    /// Records that the response ended because the worker's byte quota is used up.
    pub fn note_end_of_bytes(&self) {
        if let Some(upstream) = &self.upstream {
            note_end_of_bytes(&self.pool.network, &upstream.shared.endpoint);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let upstream = self.upstream.take();
        // A shared HTTP/2 connection is already in the pool.
        let exclusive = upstream.filter(|it| it.share().is_none());
        locked(&self.pool.idle).extend(exclusive);
    }
}

impl Upstreams {
    /// Creates a pool that contains at most a connection opened earlier. `max_requests` is the guest's limit of
    /// concurrent requests.
    pub fn new(
        network: &Arc<Network>,
        max_requests: usize,
        endpoint: Option<&Endpoint>,
        dialled: Option<Dialled>,
    ) -> Self {
        Self(Arc::new(Pool {
            network: Arc::clone(network),
            permits: Arc::new(Semaphore::new(max_requests)),
            first: Arc::new(Semaphore::new(1)),
            dialled: tokio::sync::Mutex::new(endpoint.cloned().zip(dialled)),
            idle: Mutex::default(),
        }))
    }

    /// Sends a request and returns the response head.
    pub async fn send(
        &self,
        outgoing: &Outgoing<'_>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<FromHost>, Verdict> {
        let mut retry = copy_if_retryable(&request);
        loop {
            let (mut lease, upstream, is_new) = self.0.acquire(outgoing).await?;
            match upstream.send(request).await {
                Ok((upstream, response)) => {
                    lease.upstream = Some(upstream);
                    return Ok(response.map(|body| FromHost::new(body, lease)));
                }
                // The host had closed the connection before any of the request was sent.
                Err(Some(unsent)) if !is_new => request = *unsent,
                // The host may have closed the connection while the request was in flight.
                Err(None) if !is_new => {
                    let copy = retry.take();
                    request = copy.ok_or_else(|| outgoing.fail(Failure::Broken))?;
                }
                Err(_) => return Err(outgoing.fail(Failure::Broken)),
            }
        }
    }
}

/// Returns a copy of a request that may be retried: one that is idempotent (RFC 9110, 9.2.2) and has no body.
fn copy_if_retryable(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    use hyper::body::Body as _;
    let is_retryable = request.method().is_idempotent() && request.body().is_end_stream();
    is_retryable.then(|| {
        let mut copy = Request::new(RequestBody::Left(http_body_util::Full::default()));
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        copy
    })
}

impl Pool {
    /// Returns a connection for a request, and whether the connection is new.
    async fn acquire(
        self: &Arc<Self>,
        outgoing: &Outgoing<'_>,
    ) -> Result<(Lease, Upstream, bool), Verdict> {
        loop {
            let permit = Arc::clone(&self.permits).acquire_owned().await;
            let permit = permit.map_err(|_| outgoing.fail(Failure::Broken))?;
            let lease = |permit| Lease {
                pool: Arc::clone(self),
                upstream: None,
                _permit: permit,
            };
            if let Some(upstream) = self.reusable(outgoing) {
                return Ok((lease(permit), upstream, false));
            }
            let mut dialled = self.dialled.lock().await;
            if let Some(upstream) = self.reusable(outgoing) {
                return Ok((lease(permit), upstream, false));
            }
            let first = Arc::clone(&self.first).try_acquire_owned();
            let Ok(connection_permit) = first.or_else(|_| self.network.connection_permit()) else {
                // At the connection limit, close the idle connections, none of which can take this request.
                let closed = std::mem::take(&mut *locked(&self.idle));
                if closed.is_empty() {
                    // All connections are in use. Each returns its own permit, so withhold this one: waiting for a
                    // permit then means waiting for a connection.
                    permit.forget();
                }
                continue;
            };
            let upstream = connect(outgoing, dialled.take(), connection_permit).await?;
            locked(&self.idle).extend(upstream.share());
            return Ok((lease(permit), upstream, true));
        }
    }

    /// Returns an open connection to the host that can take the request.
    fn reusable(&self, outgoing: &Outgoing<'_>) -> Option<Upstream> {
        let mut idle = locked(&self.idle);
        // Close connections to other hosts.
        idle.retain(|it| it.shared.endpoint == *outgoing.endpoint && !it.is_closed());
        if let Some(shared) = idle.iter().find_map(Upstream::share)
            && !outgoing.switches
        {
            return Some(shared);
        }
        let exclusive = idle.iter().position(|it| it.share().is_none());
        exclusive.map(|at| idle.swap_remove(at))
    }
}
