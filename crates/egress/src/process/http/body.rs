//! Bodies on their way from one connection to the other.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::super::network::Network;
use super::upstreams::Lease;

/// The body of a guest's request, without its trailers: a server may take them for headers, which were not judged.
pub type FromGuest = Passing<Counted>;

/// The body of a host's response. Its end gives the connection back.
pub type FromHost = Passing<Lease>;

type Part = hyper::Result<Frame<Bytes>>;

/// A body of which each part passes a filter.
pub struct Passing<F> {
    body: Incoming,
    filter: F,
}

impl<F> Passing<F> {
    pub fn new(body: Incoming, filter: F) -> Self {
        Self { body, filter }
    }
}

/// Sees each part of a body.
pub trait Filter {
    /// What goes on of a part. Nothing ends the body.
    fn pass(&self, part: Part) -> Option<Part>;
}

impl<F: Filter + Unpin> Body for Passing<F> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Part>> {
        let part = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(part.and_then(|part| self.filter.pass(part)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The network whose pace of HTTP/2 a body does not count against, because the limit of bytes holds for it.
pub struct Counted(pub Option<Arc<Network>>);

impl Filter for Counted {
    fn pass(&self, part: Part) -> Option<Part> {
        let Ok(frame) = part else {
            return Some(part);
        };
        let data = frame.into_data().ok()?;
        if let Some(network) = &self.0 {
            network.overhead.give_back(data.len());
        }
        Some(Ok(Frame::data(data)))
    }
}

impl Filter for Lease {
    fn pass(&self, part: Part) -> Option<Part> {
        if part.is_err() {
            self.note_end_of_bytes();
        }
        Some(part)
    }
}
