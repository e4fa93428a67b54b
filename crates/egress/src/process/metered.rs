//! A connection to a host, whose bytes are counted and limited.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::http::Place;
use super::ledger::Open;
use super::network::Network;

/// A stream to a host.
#[derive(Debug)]
pub struct Metered {
    /// The stream itself, for a caller that moves the bytes, and counts them with `meter`.
    pub stream: TcpStream,
    pub meter: Meter,
}

/// Counts the bytes of a connection, against the worker's limit.
#[derive(Debug)]
pub struct Meter {
    network: Arc<Network>,
    open: Open,
}

impl Meter {
    /// How many bytes may be carried at once; 0 if none may be any more.
    pub fn room(&self) -> usize {
        usize::try_from(self.network.bytes.left()).unwrap_or(usize::MAX)
    }

    pub fn sent(&self, bytes: usize) {
        self.network.bytes.take(bytes);
        self.open.add_sent(bytes);
    }

    pub fn received(&self, bytes: usize) {
        self.network.bytes.take(bytes);
        self.open.add_received(bytes);
    }

    fn check(&self) -> io::Result<()> {
        match self.room() {
            0 => Err(io::ErrorKind::QuotaExceeded.into()),
            _ => Ok(()),
        }
    }
}

impl Metered {
    /// Counts the bytes of this stream from now on.
    pub fn new(
        stream: TcpStream,
        network: &Arc<Network>,
        place: &Place,
        address: Option<IpAddr>,
    ) -> Self {
        let open = network.ledger.open(&place.host, place.port, address);
        let network = Arc::clone(network);
        Self {
            stream,
            meter: Meter { network, open },
        }
    }
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.meter.check()?;
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(context, buffer);
        self.meter.received(buffer.filled().len() - before);
        result
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.meter.check()?;
        let result = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(written)) = result {
            self.meter.sent(written);
        }
        result
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.meter.check()?;
        let result = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        if let Poll::Ready(Ok(written)) = result {
            self.meter.sent(written);
        }
        result
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
