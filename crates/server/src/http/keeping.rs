//! Response bodies that own a value until they are sent.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Error;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// The maximum size in bytes of a chunk. The connection asks for the next chunk once it has written this one.
const MAX_CHUNK: usize = 64 << 10;

/// Wraps a body that owns `kept` until it is sent, that is, until the connection has written the last bytes rather than
/// only buffered them.
pub fn keep_until_sent<T: Send + Sync + 'static>(body: Body, kept: T) -> Body {
    Body::new(Keeping {
        body,
        rest: Bytes::new(),
        kept: Arc::new(kept),
    })
}

/// A body in chunks, each of which shares ownership of `kept`: a connection drops the body itself as soon as it has
/// buffered the last chunk.
struct Keeping<T> {
    body: Body,
    /// The rest of data that is too long for one chunk.
    rest: Bytes,
    kept: Arc<T>,
}

/// A chunk, which owns `kept` until it is dropped.
struct Chunk<T> {
    bytes: Bytes,
    _kept: Arc<T>,
}

impl<T> AsRef<[u8]> for Chunk<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T> Keeping<T> {
    fn chunk(&mut self, bytes: Bytes) -> Bytes {
        self.rest = bytes;
        if self.rest.len() <= MAX_CHUNK {
            return mem::take(&mut self.rest);
        }
        self.next_of_rest()
    }

    /// Copies the next chunk: a slice of the shared buffer would keep the whole buffer alive.
    fn next_of_rest(&mut self) -> Bytes {
        let length = self.rest.len().min(MAX_CHUNK);
        Bytes::copy_from_slice(&self.rest.split_to(length))
    }
}

impl<T: Send + Sync + 'static> HttpBody for Keeping<T> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let bytes = if self.rest.is_empty() {
            let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => frame,
                end => return Poll::Ready(end),
            };
            match frame.into_data() {
                Ok(bytes) => self.chunk(bytes),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        } else {
            self.next_of_rest()
        };
        let chunk = Chunk {
            bytes,
            _kept: Arc::clone(&self.kept),
        };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(chunk)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::pending;
    use std::sync::Weak;
    use std::time::Duration;

    use axum::Router;
    use axum::routing::get;
    use futures_util::stream::iter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpSocket, TcpStream};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::http::{HttpBounds, Serving};
    use crate::metrics::Metrics;

    /// More than the buffers of two sockets hold.
    const LENGTH: usize = 32 << 20;

    /// Connects to a server with a single response, which owns the value behind the returned reference.
    async fn connection(body: fn() -> Body) -> (TcpStream, Weak<()>) {
        let kept = Arc::new(());
        let named = Arc::downgrade(&kept);
        let once = Arc::new(std::sync::Mutex::new(Some(kept)));
        let answer = async move || keep_until_sent(body(), crate::locked(&once).take());
        let serving = Serving {
            router: Router::new().route("/", get(answer)),
            bounds: HttpBounds::default(),
            tls: None,
            metrics: Arc::new(Metrics::new()),
            draining: Arc::default(),
            drain: Duration::ZERO,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(serving.serve(listener, pending()));
        let socket = TcpSocket::new_v4().expect("a socket");
        socket.set_recv_buffer_size(4096).expect("a size");
        let stream = socket.connect(address).await.expect("the peer listens");
        (stream, named)
    }

    async fn is_kept_until_it_is_read(body: fn() -> Body) {
        let (mut stream, kept) = connection(body).await;
        let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.expect("a successful send");
        assert_eq!(stream.read_u8().await.ok(), Some(b'H'));
        // The client reads nothing while the server writes what the socket buffers hold.
        sleep(Duration::from_millis(200)).await;
        assert_eq!(kept.strong_count(), 1);
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.expect("it is whole");
        assert!(answer.len() > LENGTH);
        let is_free = async {
            while kept.strong_count() > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(Duration::from_secs(60), is_free)
            .await
            .expect("it is kept no longer");
    }

    #[tokio::test]
    async fn unread_response_of_known_length_keeps_the_value() {
        is_kept_until_it_is_read(|| vec![b'x'; LENGTH].into()).await;
    }

    #[tokio::test]
    async fn unread_last_item_of_a_stream_keeps_the_value() {
        is_kept_until_it_is_read(|| {
            Body::from_stream(iter([Ok::<_, Infallible>(vec![b'x'; LENGTH])]))
        })
        .await;
    }
}
