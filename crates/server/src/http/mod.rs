//! Connections: how many there are, how slow they may be, and how they end.

mod body;
mod budget;
mod log;
mod unhurried;

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tower::ServiceExt;

pub use self::body::{Bodies, Posted, Sized};
pub use self::budget::Held;
pub use self::log::{Tracked, log};
use self::unhurried::Patient;
use crate::config::HttpBounds;
use crate::metrics::Metrics;

/// Whether the server ends.
#[derive(Debug, Default)]
pub struct Draining(AtomicBool);

impl Draining {
    /// From now on it does.
    pub fn begin(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it does.
    pub fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Serves connections until `ended`, and then those that are open for `drain` more.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    bounds: HttpBounds,
    metrics: Arc<Metrics>,
    ended: impl Future<Output = ()>,
    drain: Duration,
) {
    let places = Arc::new(Semaphore::new(bounds.connections));
    let open = GracefulShutdown::new();
    let mut ended = pin!(ended);
    loop {
        let next = async {
            // One that has no place waits in the kernel's queue.
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
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
        let connection = open.watch(connection(stream, router.clone(), bounds));
        let metrics = Arc::clone(&metrics);
        metrics.connections.inc();
        tokio::spawn(async move {
            // A client that breaks off, or is too slow, is no event.
            _ = connection.await;
            metrics.connections.dec();
            drop(place);
        });
    }
    drop(listener);
    if tokio::time::timeout(drain, open.shutdown()).await.is_err() {
        tracing::warn!("what still ran after {} s is cancelled", drain.as_secs());
    }
}

/// A connection, as something to await.
fn connection(
    stream: TcpStream,
    router: Router,
    bounds: HttpBounds,
) -> http1::Connection<
    TokioIo<Patient<TcpStream>>,
    impl hyper::service::Service<
        Request<Incoming>,
        Response = axum::response::Response,
        Error = Infallible,
        Future: Send,
    >,
> {
    // Answers are written whole: waiting for more to send only delays them.
    _ = stream.set_nodelay(true);
    let service = router.map_request(|request: Request<Incoming>| request.map(Body::new));
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(bounds.head)
        .max_buf_size(64 << 10);
    builder.serve_connection(
        TokioIo::new(Patient::new(stream, bounds.pause)),
        TowerToHyperService::new(service),
    )
}
