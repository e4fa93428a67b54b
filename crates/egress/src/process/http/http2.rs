//! HTTP/2 over TLS: the server and client settings, and the limits that protect this process from a guest or a host.
//! RFC 9113 makes the length of a request unambiguous, and hyper rejects violations.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::Executor;
use hyper::{client, server};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, join, split};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, sleep_until};

use super::super::dial::Dialled;
use super::super::locked;
use super::super::network::Network;
use super::{Endpoint, Gate, Scheme};

/// The maximum number of concurrent requests on a guest's connection.
const MAX_STREAMS: u32 = 32;

/// Flow-control windows in bytes for request bodies: per stream and per connection. The guest is local, so larger
/// windows would not be faster.
const FROM_GUEST: (u32, u32) = (128 << 10, 256 << 10);

/// Flow-control windows in bytes for response bodies: per stream and per connection. The host may be far away.
const FROM_HOST: (u32, u32) = (1 << 20, 2 << 20);

/// The maximum number of unsent bytes that are buffered for each stream.
const MAX_UNSENT: usize = 16 << 10;

/// The maximum size of the headers of a request or response: their bytes, plus 32 for each header (RFC 9113, 6.5.2).
const MAX_HEADER_LIST: u32 = 64 << 10;

/// The bytes charged to the rate limit for each request. A request that is reset at once costs this process more than
/// the bytes that it takes to send.
pub const REQUEST_COST: usize = 1024;

/// The maximum wait of a throttled guest before the rate limit is checked again.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves the requests of a guest's HTTP/2 connection to a host.
pub async fn serve<I>(network: &Arc<Network>, io: I, endpoint: Endpoint, dialled: Option<Dialled>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let max_requests = usize::try_from(MAX_STREAMS).unwrap_or(1);
    let gate = Gate::new(
        network,
        Scheme::Https,
        Some(endpoint),
        dialled,
        max_requests,
    );
    let tasks = OwnTasks::default();
    let (reader, writer) = split(io);
    let io = join(Throttled::new(reader, network), writer);
    let (stream, connection) = FROM_GUEST;
    let connection = server::conn::http2::Builder::new(tasks.0.clone())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEADER_LIST)
        .initial_stream_window_size(stream)
        .initial_connection_window_size(connection)
        .max_send_buf_size(MAX_UNSENT)
        .serve_connection(TokioIo::new(io), gate.service());
    // A guest that disconnects or violates the protocol gets the error from its own library.
    _ = connection.await;
}

/// Returns the settings of the client side.
pub fn client_builder(tasks: &Tasks) -> client::conn::http2::Builder<Tasks> {
    let (stream, connection) = FROM_HOST;
    let mut builder = client::conn::http2::Builder::new(tasks.clone());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(MAX_HEADER_LIST)
        .initial_stream_window_size(stream)
        .initial_connection_window_size(connection)
        .max_send_buf_size(MAX_UNSENT);
    builder
}

/// The tasks of one connection.
#[derive(Clone, Default)]
pub struct Tasks(Arc<Mutex<JoinSet<()>>>);

impl Tasks {
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = locked(&self.0);
        while tasks.try_join_next().is_some() {}
        tasks.spawn(task);
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Tasks {
    fn execute(&self, task: F) {
        self.spawn(task);
    }
}

/// Tasks that are aborted when this value is dropped. Dropping `Tasks` would not suffice: some tasks hold a clone of
/// it.
#[derive(Default)]
pub struct OwnTasks(pub Tasks);

impl Drop for OwnTasks {
    fn drop(&mut self) {
        locked(&self.0.0).abort_all();
    }
}

/// A guest's stream, throttled to the worker's rate limit for bytes outside request bodies: request heads, and frames
/// that cost the guest nothing but cost this process time.
struct Throttled<I> {
    io: I,
    network: Arc<Network>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl<I> Throttled<I> {
    fn new(io: I, network: &Arc<Network>) -> Self {
        let network = Arc::clone(network);
        let wait = None;
        Self { io, network, wait }
    }

    /// Charges bytes. Delays the next read if they exceed the rate.
    fn charge(&mut self, bytes: usize) {
        let now = Instant::now();
        let due = self.network.overhead.take(bytes, now);
        // A refund for a body that has reached its host may shorten the wait.
        self.wait = due.map(|due| Box::pin(sleep_until(due.min(now + PAUSE))));
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Throttled<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        while let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(context));
            self.charge(0);
        }
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(context, buffer));
        self.charge(buffer.filled().len() - before);
        Poll::Ready(read)
    }
}
