//! Request and response bodies, as they are forwarded between two connections.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::super::network::Network;
use super::upstreams::Lease;

/// The body of a guest's request without its trailers, because a server may treat trailers as headers, and trailers are
/// not checked.
pub type FromGuest = FilteredBody<Counted>;

/// The body of a host's response. Its end returns the connection to the pool.
pub type FromHost = FilteredBody<Lease>;

type Part = hyper::Result<Frame<Bytes>>;

/// A body whose frames pass through a filter.
pub struct FilteredBody<F> {
    body: Incoming,
    filter: F,
}

impl<F> FilteredBody<F> {
    pub fn new(body: Incoming, filter: F) -> Self {
        Self { body, filter }
    }
}

/// Filters the frames of a body.
pub trait Filter {
    /// Returns the frame to forward. `None` ends the body.
    fn filter_frame(&self, part: Part) -> Option<Part>;
}

impl<F: Filter + Unpin> Body for FilteredBody<F> {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Part>> {
        let part = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(part.and_then(|part| self.filter.filter_frame(part)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The filter of request bodies. Over HTTP/2 it refunds the bytes of a body to the rate limit of the network, because
/// the byte quota already covers them.
pub struct Counted(pub Option<Arc<Network>>);

impl Filter for Counted {
    fn filter_frame(&self, part: Part) -> Option<Part> {
        let Ok(frame) = part else {
            return Some(part);
        };
        let data = frame.into_data().ok()?;
        if let Some(network) = &self.0 {
            network.overhead.refund(data.len());
        }
        Some(Ok(Frame::data(data)))
    }
}

impl Filter for Lease {
    fn filter_frame(&self, part: Part) -> Option<Part> {
        if part.is_err() {
            self.note_end_of_bytes();
        }
        Some(part)
    }
}
