//! Serves HTTP connections: limits their number, closes slow ones, and shuts them down gracefully.

mod body;
mod bounds;
mod budget;
mod cross_site;
mod draining;
mod keeping;
mod live;
mod log;
mod slots;
mod tls;
mod unused;
mod values;
mod write_timeout;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tower::ServiceExt;

pub use self::body::{BLOCKING_THRESHOLD, Bodies, JsonBody, RawBody};
pub use self::bounds::HttpBounds;
pub use self::budget::{Budget, Held, length_of, serialization_failure};
pub use self::cross_site::reject_cross_site;
pub use self::draining::{Draining, until_cut_off};
pub use self::keeping::keep_until_sent;
pub use self::live::{Live, LiveText, SizedItem};
pub use self::log::{TenantName, begin_log, log};
pub use self::slots::RequestSlots;
pub use self::tls::Tls;
use self::unused::{Connection, Unused};
pub use self::values::{memory_as_values, memory_of_values};
use self::write_timeout::WriteTimeout;
use crate::metrics::Metrics;

/// The time limit for sending the last responses at shutdown.
const FINAL_FLUSH: Duration = Duration::from_secs(2);

/// The router, limits and shared state with which connections are served.
#[derive(Debug)]
pub struct Serving {
    /// Handles requests.
    pub router: Router,
    /// The limits of connections and bodies.
    pub bounds: HttpBounds,
    /// Terminates TLS, if a certificate is configured.
    pub tls: Option<Tls>,
    /// Counts connections.
    pub metrics: Arc<Metrics>,
    /// The state of the shutdown.
    pub draining: Arc<Draining>,
    /// How long active requests may continue after the shutdown has begun.
    pub drain: Duration,
}

impl Serving {
    /// Serves connections until `ended` completes, then drains the open ones.
    pub async fn serve(self, listener: TcpListener, ended: impl Future<Output = ()>) {
        let permits = Arc::new(Semaphore::new(self.bounds.connections));
        let unused = Arc::new(Unused::default());
        let open = GracefulShutdown::new();
        let (drain, draining) = (self.drain, Arc::clone(&self.draining));
        let serving = Arc::new(self);
        let mut ended = pin!(ended);
        loop {
            // While a connection waits for its permit, others wait in the kernel's accept queue.
            let next = async {
                let accepted = listener.accept().await;
                (connection_permit(&permits, &unused).await, accepted)
            };
            let (permit, accepted) = tokio::select! {
                next = next => next,
                () = &mut ended => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("cannot accept a connection: {error}");
                    // The process may be out of descriptors. Other connections will close.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (serving, watcher) = (Arc::clone(&serving), open.watcher());
            let connection = unused.connection();
            tokio::spawn(async move {
                serving.metrics.connections.inc();
                tokio::select! {
                    () = serving.handle(stream, watcher, &connection) => {}
                    () = connection.wait_for_close() => {}
                }
                serving.metrics.connections.dec();
                drop(permit);
            });
        }
        draining.begin();
        drop(listener);
        let mut all_closed = pin!(open.shutdown());
        if timeout(drain, &mut all_closed).await.is_err() {
            tracing::warn!(
                "cancelling the requests that are still active after {} s",
                drain.as_secs()
            );
            draining.cut_off();
            _ = timeout(FINAL_FLUSH, all_closed).await;
        }
    }

    async fn handle(&self, stream: TcpStream, watcher: Watcher, connection: &Arc<Connection>) {
        // Responses are written as a whole, so Nagle's algorithm would only delay them.
        _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.answer(stream, watcher, connection).await;
        };
        // The handshake has the same timeout as a request head.
        if let Ok(Ok(stream)) = timeout(self.bounds.head, tls.accept(stream)).await {
            self.answer(stream, watcher, connection).await;
        }
    }

    async fn answer<S>(&self, stream: S, watcher: Watcher, connection: &Arc<Connection>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (router, connection) = (self.router.clone(), Arc::clone(connection));
        let service = router.map_request(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(Arc::clone(&connection));
            request.map(Body::new)
        });
        let mut builder = http1::Builder::new();
        builder
            .timer(TokioTimer::new())
            .header_read_timeout(self.bounds.head)
            .max_buf_size(64 << 10);
        let connection = builder.serve_connection(
            TokioIo::new(WriteTimeout::new(stream, self.bounds.pause)),
            TowerToHyperService::new(service),
        );
        // Disconnects and timeouts of clients are not logged.
        _ = watcher.watch(connection).await;
    }
}

/// Acquires a permit for a connection. If none is free, closes a connection that no tenant uses.
async fn connection_permit(
    permits: &Arc<Semaphore>,
    unused: &Unused,
) -> Result<OwnedSemaphorePermit, AcquireError> {
    /// The interval at which another unused connection is closed: closing takes a moment, and connections in use now
    /// may become unused later.
    const CLOSE_INTERVAL: Duration = Duration::from_millis(100);
    if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
        return Ok(permit);
    }
    loop {
        unused.close_longest_unused();
        let permit = timeout(CLOSE_INTERVAL, Arc::clone(permits).acquire_owned()).await;
        if let Ok(permit) = permit {
            return permit;
        }
    }
}
