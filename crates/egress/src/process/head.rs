//! A guest's connection, with bytes of it that were read ahead to decide what it is.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// How much is read at once.
const CHUNK: usize = 4096;

/// A stream whose first bytes may have been read already.
#[derive(Debug)]
pub struct Guest {
    /// The bytes that were read ahead.
    pub head: BytesMut,
    /// Where the others come from.
    pub stream: TcpStream,
}

impl Guest {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            head: BytesMut::new(),
            stream,
        }
    }

    /// Puts bytes back in front of those that follow.
    #[must_use]
    pub fn with_head(mut self, bytes: &[u8]) -> Self {
        let mut head = BytesMut::from(bytes);
        head.extend_from_slice(&self.head);
        self.head = head;
        self
    }

    /// Reads ahead. Returns the number of bytes, 0 at the end.
    pub async fn read_ahead(&mut self) -> io::Result<usize> {
        self.head.reserve(CHUNK);
        self.stream.read_buf(&mut self.head).await
    }
}

impl AsyncRead for Guest {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.head.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = self.head.len().min(buffer.remaining());
        buffer.put_slice(&self.head[..length]);
        self.head.advance(length);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Guest {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, buffers)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
