//! HTTP/2 over TLS: what a guest and a host may take of this process. RFC 9113 leaves no second reading of a request's
//! length, and hyper refuses what it forbids.

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
use super::{Gate, Place, Scheme};

/// Requests of a guest's connection at a time.
const MOST_STREAMS: u32 = 32;

/// Bytes of a request's body, and of all those of a connection, that may wait for the host. The guest is near, so more
/// would not be faster.
const FROM_GUEST: (u32, u32) = (128 << 10, 256 << 10);

/// Bytes of a response's body, and of all those of a connection, that may wait for the guest. The host may be far.
const FROM_HOST: (u32, u32) = (1 << 20, 2 << 20);

/// Bytes of each body that may wait for the connection that they are written to.
const MOST_UNSENT: usize = 16 << 10;

/// The most bytes of the headers of a request or response, each with 32 more (RFC 9113, 6.5.2).
const MOST_OF_HEADERS: u32 = 64 << 10;

/// What a request costs beside its bytes: one that is taken back at once costs more than it takes to send.
pub const COST_OF_REQUEST: usize = 1024;

/// How long a guest that is too fast waits before its pace is looked at again.
const PAUSE: Duration = Duration::from_millis(50);

/// Serves the requests of a connection to a host.
pub async fn serve<I>(network: &Arc<Network>, io: I, place: Place, dialled: Option<Dialled>)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let most = usize::try_from(MOST_STREAMS).unwrap_or(1);
    let gate = Gate::new(network, Scheme::Https, Some(place), dialled, most);
    let tasks = OwnTasks::default();
    let (reader, writer) = split(io);
    let io = join(Paced::new(reader, network), writer);
    let (stream, connection) = FROM_GUEST;
    let connection = server::conn::http2::Builder::new(tasks.0.clone())
        .timer(TokioTimer::new())
        .max_concurrent_streams(MOST_STREAMS)
        .max_header_list_size(MOST_OF_HEADERS)
        .initial_stream_window_size(stream)
        .initial_connection_window_size(connection)
        .max_send_buf_size(MOST_UNSENT)
        .serve_connection(TokioIo::new(io), gate.service());
    // A guest that breaks off, or breaks the protocol, hears of it from its own library.
    _ = connection.await;
}

/// How this process speaks to a host.
pub fn to_host(tasks: &Tasks) -> client::conn::http2::Builder<Tasks> {
    let (stream, connection) = FROM_HOST;
    let mut builder = client::conn::http2::Builder::new(tasks.clone());
    builder
        .timer(TokioTimer::new())
        .max_header_list_size(MOST_OF_HEADERS)
        .initial_stream_window_size(stream)
        .initial_connection_window_size(connection)
        .max_send_buf_size(MOST_UNSENT);
    builder
}

/// Tasks of one connection.
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

/// Tasks that end with this value. Some hold the others themselves, so dropping those does not end them.
#[derive(Default)]
pub struct OwnTasks(pub Tasks);

impl Drop for OwnTasks {
    fn drop(&mut self) {
        locked(&self.0.0).abort_all();
    }
}

/// A guest's stream that is read no faster than its worker may send what is no body: heads of requests, and frames that
/// cost this process time and the guest nothing.
struct Paced<I> {
    io: I,
    network: Arc<Network>,
    wait: Option<Pin<Box<Sleep>>>,
}

impl<I> Paced<I> {
    fn new(io: I, network: &Arc<Network>) -> Self {
        let network = Arc::clone(network);
        let wait = None;
        Self { io, network, wait }
    }

    /// Counts bytes, and waits before the next ones if there are too many.
    fn count(&mut self, bytes: usize) {
        let now = Instant::now();
        let due = self.network.overhead.take(bytes, now);
        // Bodies that reach their host shorten the wait.
        self.wait = due.map(|due| Box::pin(sleep_until(due.min(now + PAUSE))));
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Paced<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        while let Some(wait) = &mut self.wait {
            ready!(wait.as_mut().poll(context));
            self.count(0);
        }
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.io).poll_read(context, buffer));
        self.count(buffer.filled().len() - before);
        Poll::Ready(read)
    }
}
