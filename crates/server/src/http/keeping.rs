//! Bodies of answers that keep something until they are sent.

use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::Error;
use axum::body::{Body, HttpBody};
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};

/// The most bytes of a body that a connection takes at once. It asks for more when it has sent those.
const PIECE: usize = 64 << 10;

/// A body that keeps this until it is sent: until the connection has written the last bytes, and not only taken them.
pub fn keeping<T: Send + Sync + 'static>(body: Body, kept: T) -> Body {
    Body::new(Keeping {
        body,
        rest: Bytes::new(),
        kept: Arc::new(kept),
    })
}

/// A body in pieces. Each of them has what is kept: a connection drops a body when it has taken the last one.
struct Keeping<T> {
    body: Body,
    /// What is left of bytes that are too many for one piece.
    rest: Bytes,
    kept: Arc<T>,
}

/// A piece, and what is kept until it is dropped.
struct Piece<T> {
    bytes: Bytes,
    _kept: Arc<T>,
}

impl<T> AsRef<[u8]> for Piece<T> {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<T> Keeping<T> {
    fn piece(&mut self, bytes: Bytes) -> Bytes {
        self.rest = bytes;
        if self.rest.len() <= PIECE {
            return mem::take(&mut self.rest);
        }
        self.next_of_rest()
    }

    /// A copy: a part of the same memory would keep all of it.
    fn next_of_rest(&mut self) -> Bytes {
        let length = self.rest.len().min(PIECE);
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
                Ok(bytes) => self.piece(bytes),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        } else {
            self.next_of_rest()
        };
        let piece = Piece {
            bytes,
            _kept: Arc::clone(&self.kept),
        };
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_owner(piece)))))
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

    /// More than the buffers of two sockets.
    const LENGTH: usize = 32 << 20;

    /// A connection to a server with one answer, which keeps what the result names.
    async fn connection(body: fn() -> Body) -> (TcpStream, Weak<()>) {
        let kept = Arc::new(());
        let named = Arc::downgrade(&kept);
        let once = Arc::new(std::sync::Mutex::new(Some(kept)));
        let answer = async move || keeping(body(), crate::locked(&once).take());
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
        let stream = socket.connect(address).await.expect("it listens");
        (stream, named)
    }

    async fn is_kept_until_it_is_read(body: fn() -> Body) {
        let (mut stream, kept) = connection(body).await;
        let request = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        stream.write_all(request).await.expect("it is sent");
        assert_eq!(stream.read_u8().await.ok(), Some(b'H'));
        // Nothing reads now, and the server takes what it can.
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
    async fn an_answer_of_known_length_that_nothing_reads_is_not_sent_yet() {
        is_kept_until_it_is_read(|| vec![b'x'; LENGTH].into()).await;
    }

    #[tokio::test]
    async fn the_last_item_of_a_stream_that_nothing_reads_is_not_sent_yet() {
        is_kept_until_it_is_read(|| {
            Body::from_stream(iter([Ok::<_, Infallible>(vec![b'x'; LENGTH])]))
        })
        .await;
    }
}
