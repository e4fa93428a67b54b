//! A connection to a host that counts its bytes and enforces the worker's quota.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::http::Endpoint;
use super::ledger::Open;
use super::network::Network;

/// A metered stream to a host.
#[derive(Debug)]
pub struct Metered {
    /// The inner stream, for a caller that transfers the bytes itself and reports them to `meter`.
    pub stream: TcpStream,
    pub meter: Meter,
}

/// Counts the bytes of a connection and charges them to the worker's quota.
#[derive(Debug)]
pub struct Meter {
    network: Arc<Network>,
    open: Open,
}

impl Meter {
    /// Returns the number of bytes that may be transferred now; 0 if the quota is used up.
    pub fn remaining(&self) -> usize {
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
        match self.remaining() {
            0 => Err(io::ErrorKind::QuotaExceeded.into()),
            _ => Ok(()),
        }
    }
}

impl Metered {
    /// Wraps a stream. Its entry in the ledger stays open as long as the stream.
    pub fn new(
        stream: TcpStream,
        network: &Arc<Network>,
        endpoint: &Endpoint,
        address: Option<IpAddr>,
    ) -> Self {
        let open = network.ledger.open(&endpoint.host, endpoint.port, address);
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
