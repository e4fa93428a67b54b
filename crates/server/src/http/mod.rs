//! Connections: how many there are, how slow they may be, and how they end.

mod body;
mod bounds;
mod budget;
mod draining;
mod keeping;
mod live;
mod log;
mod place;
mod sites;
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

pub use self::body::{Bodies, JsonBody, RawBody};
pub use self::bounds::HttpBounds;
pub use self::budget::{Budget, Held, length_of, unwritten};
pub use self::draining::{Draining, until_cut_off};
pub use self::keeping::keeping;
pub use self::live::{Live, LiveText, WithBytes};
pub use self::log::{TenantName, begin_log, log};
pub use self::place::Places;
pub use self::sites::refuse_other_sites;
pub use self::tls::Tls;
use self::unused::{Connection, Unused};
pub use self::values::{memory_as_values, memory_of_values};
use self::write_timeout::WriteTimeout;
use crate::metrics::Metrics;

/// How long the last answers may take to be sent.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// How connections are served.
#[derive(Debug)]
pub struct Serving {
    /// What answers.
    pub router: Router,
    /// Bounds of connections.
    pub bounds: HttpBounds,
    /// Encrypts, if there is a certificate.
    pub tls: Option<Tls>,
    /// Counts connections.
    pub metrics: Arc<Metrics>,
    /// How far the end has come.
    pub draining: Arc<Draining>,
    /// How long requests that are being answered may go on at the end.
    pub drain: Duration,
}

impl Serving {
    /// Serves connections until `ended`, and then those that are still open.
    pub async fn serve(self, listener: TcpListener, ended: impl Future<Output = ()>) {
        let places = Arc::new(Semaphore::new(self.bounds.connections));
        let unused = Arc::new(Unused::default());
        let open = GracefulShutdown::new();
        let (drain, draining) = (self.drain, Arc::clone(&self.draining));
        let serving = Arc::new(self);
        let mut ended = pin!(ended);
        loop {
            // Those that come while one waits for its place wait in the kernel's queue.
            let next = async {
                let accepted = listener.accept().await;
                (place(&places, &unused).await, accepted)
            };
            let (place, accepted) = tokio::select! {
                next = next => next,
                () = &mut ended => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!("a connection could not be accepted: {error}");
                    // The process may have no descriptor left: others end meanwhile.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (serving, watcher) = (Arc::clone(&serving), open.watcher());
            let connection = unused.connection();
            tokio::spawn(async move {
                serving.metrics.connections.inc();
                tokio::select! {
                    () = serving.attend(stream, watcher, &connection) => {}
                    () = connection.is_to_close() => {}
                }
                serving.metrics.connections.dec();
                drop(place);
            });
        }
        draining.begin();
        drop(listener);
        let mut all_closed = pin!(open.shutdown());
        if timeout(drain, &mut all_closed).await.is_err() {
            tracing::warn!("what still ran after {} s is cancelled", drain.as_secs());
            draining.cut_off();
            _ = timeout(LAST_ANSWERS, all_closed).await;
        }
    }

    async fn attend(&self, stream: TcpStream, watcher: Watcher, connection: &Arc<Connection>) {
        // Answers are written whole: waiting for more to send only delays them.
        _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.answer(stream, watcher, connection).await;
        };
        // A client that does not come to an end with it is too slow, as with a head.
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
        // A client that breaks off, or is too slow, is no event.
        _ = watcher.watch(connection).await;
    }
}

/// A place for a connection. If none is left, one that no tenant uses makes room.
async fn place(
    places: &Arc<Semaphore>,
    unused: &Unused,
) -> Result<OwnedSemaphorePermit, AcquireError> {
    /// Until another one makes room too: what closes takes a moment, and one that is used now may be unused then.
    const UNTIL_NEXT: Duration = Duration::from_millis(100);
    if let Ok(place) = Arc::clone(places).try_acquire_owned() {
        return Ok(place);
    }
    loop {
        unused.close_longest();
        let place = timeout(UNTIL_NEXT, Arc::clone(places).acquire_owned()).await;
        if let Ok(place) = place {
            return place;
        }
    }
}
