//! Bodies on their way from one connection to the other.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::super::network::Network;
use super::upstreams::Lease;

/// The body of a guest's request, without its trailers: a server may take them for headers, which were not judged.
pub struct FromGuest {
    body: Incoming,
    /// The network whose pace of HTTP/2 the body does not count against, because the limit of bytes holds for it.
    paced: Option<Arc<Network>>,
}

impl FromGuest {
    pub fn new(body: Incoming, paced: Option<Arc<Network>>) -> Self {
        Self { body, paced }
    }
}

impl Body for FromGuest {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        let Some(Ok(frame)) = frame else {
            return Poll::Ready(frame);
        };
        let data = frame.into_data().ok();
        if let (Some(data), Some(network)) = (&data, &self.paced) {
            network.overhead.give_back(data.len());
        }
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of a host's response. Its end gives the connection back.
pub struct FromHost {
    body: Incoming,
    lease: Lease,
}

impl FromHost {
    pub fn new(body: Incoming, lease: Lease) -> Self {
        Self { body, lease }
    }
}

impl Body for FromHost {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Err(_)) = frame {
            self.lease.note_end_of_bytes();
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
