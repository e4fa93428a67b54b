//! The connections to hosts that the requests of one guest's connection share.
//!
//! Requests over HTTP/2 share one. A request over HTTP/1 has one to itself until its response has ended, so that none
//! waits for a response that the guest does not read.

use std::sync::{Arc, Mutex};

use hyper::{Request, Response};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::super::connection::note_end_of_bytes;
use super::super::dial::Dialled;
use super::super::locked;
use super::super::network::Network;
use super::body::FromHost;
use super::upstream::{Outgoing, Upstream, connect};
use super::{Place, RequestBody};
use crate::refusal::{Failure, Verdict};

/// Connections to hosts.
pub struct Upstreams(Arc<Pool>);

struct Pool {
    network: Arc<Network>,
    /// Requests over HTTP/1 at a time.
    turns: Arc<Semaphore>,
    /// The connection to a host that goes with the guest's own. The policy's limit counts each further one.
    first: Arc<Semaphore>,
    /// A connection that was made before the first request. Locked while another one is made.
    dialled: tokio::sync::Mutex<Option<(Place, Dialled)>>,
    idle: Mutex<Vec<Upstream>>,
}

/// A connection that a response is read from.
pub struct Lease {
    pool: Arc<Pool>,
    upstream: Option<Upstream>,
    _turn: OwnedSemaphorePermit,
}

impl Lease {
    /// Notes that the response ended because the worker's limit was reached.
    pub fn note_end_of_bytes(&self) {
        if let Some(upstream) = &self.upstream {
            note_end_of_bytes(&self.pool.network, &upstream.held.place);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let upstream = self.upstream.take();
        // One that is shared is there already.
        let of_one = upstream.filter(|it| it.share().is_none());
        locked(&self.pool.idle).extend(of_one);
    }
}

impl Upstreams {
    /// None yet, but for a connection that was made before. `most` is how many requests the guest has at a time.
    pub fn new(
        network: &Arc<Network>,
        most: usize,
        place: Option<&Place>,
        dialled: Option<Dialled>,
    ) -> Self {
        Self(Arc::new(Pool {
            network: Arc::clone(network),
            turns: Arc::new(Semaphore::new(most)),
            first: Arc::new(Semaphore::new(1)),
            dialled: tokio::sync::Mutex::new(place.cloned().zip(dialled)),
            idle: Mutex::default(),
        }))
    }

    /// Sends a request and returns the head of the response.
    pub async fn send(
        &self,
        outgoing: &Outgoing<'_>,
        mut request: Request<RequestBody>,
    ) -> Result<Response<FromHost>, Verdict> {
        let mut again = copy_of_repeatable(&request);
        loop {
            let (mut lease, upstream, is_new) = self.0.obtain(outgoing).await?;
            match upstream.send(request).await {
                Ok((upstream, response)) => {
                    lease.upstream = Some(upstream);
                    return Ok(response.map(|body| FromHost::new(body, lease)));
                }
                // The host had closed the connection before it saw the request.
                Err(Some(unsent)) if !is_new => request = *unsent,
                // Perhaps it did so while the request was on its way.
                Err(None) if !is_new => {
                    let copy = again.take();
                    request = copy.ok_or_else(|| outgoing.fail(Failure::Broken))?;
                }
                Err(_) => return Err(outgoing.fail(Failure::Broken)),
            }
        }
    }
}

/// A copy of a request that may be sent twice: one that has no body, and means the same then (RFC 9110, 9.2.2).
fn copy_of_repeatable(request: &Request<RequestBody>) -> Option<Request<RequestBody>> {
    use hyper::body::Body as _;
    let is_repeatable = request.method().is_idempotent() && request.body().is_end_stream();
    is_repeatable.then(|| {
        let mut copy = Request::new(RequestBody::Left(http_body_util::Full::default()));
        *copy.method_mut() = request.method().clone();
        *copy.uri_mut() = request.uri().clone();
        *copy.version_mut() = request.version();
        *copy.headers_mut() = request.headers().clone();
        copy
    })
}

impl Pool {
    /// A connection for a request, and whether it is a new one.
    async fn obtain(
        self: &Arc<Self>,
        outgoing: &Outgoing<'_>,
    ) -> Result<(Lease, Upstream, bool), Verdict> {
        loop {
            let turn = Arc::clone(&self.turns).acquire_owned().await;
            let turn = turn.map_err(|_| outgoing.fail(Failure::Broken))?;
            let lease = |turn| Lease {
                pool: Arc::clone(self),
                upstream: None,
                _turn: turn,
            };
            if let Some(upstream) = self.used(outgoing) {
                return Ok((lease(turn), upstream, false));
            }
            let mut dialled = self.dialled.lock().await;
            if let Some(upstream) = self.used(outgoing) {
                return Ok((lease(turn), upstream, false));
            }
            let first = Arc::clone(&self.first).try_acquire_owned();
            let Ok(room) = first.or_else(|_| self.network.room()) else {
                // A connection that cannot take this request makes room for one that can.
                let kept = std::mem::take(&mut *locked(&self.idle));
                if kept.is_empty() {
                    // The others are in use by requests, whose turns come back.
                    turn.forget();
                }
                continue;
            };
            let upstream = connect(outgoing, dialled.take(), room).await?;
            locked(&self.idle).extend(upstream.share());
            return Ok((lease(turn), upstream, true));
        }
    }

    /// A connection to the host that no request has to itself.
    fn used(&self, outgoing: &Outgoing<'_>) -> Option<Upstream> {
        let mut idle = locked(&self.idle);
        // A connection to another host ends here.
        idle.retain(|it| it.held.place == *outgoing.place && !it.is_closed());
        if let Some(shared) = idle.iter().find_map(Upstream::share)
            && !outgoing.switches
        {
            return Some(shared);
        }
        let of_one = idle.iter().position(|it| it.share().is_none());
        of_one.map(|at| idle.swap_remove(at))
    }
}
