//! A guest's connection with a read-ahead buffer, from which its protocol is detected.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// The number of bytes to read at a time.
const CHUNK: usize = 4096;

/// A stream whose first bytes may already have been read.
#[derive(Debug)]
pub struct Guest {
    /// The bytes that were read ahead.
    pub head: BytesMut,
    /// The source of the following bytes.
    pub stream: TcpStream,
}

impl Guest {
    pub fn new(stream: TcpStream) -> Self {
        Self {
            head: BytesMut::new(),
            stream,
        }
    }

    /// Prepends bytes to the read-ahead buffer.
    #[must_use]
    pub fn with_head(mut self, bytes: &[u8]) -> Self {
        let mut head = BytesMut::from(bytes);
        head.extend_from_slice(&self.head);
        self.head = head;
        self
    }

    /// Reads ahead. Returns the number of bytes read, 0 at EOF.
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
