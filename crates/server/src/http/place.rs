//! How many requests of one tenant are in progress, so that other tenants find connections.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::response::Response;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::failure::Failure;

/// The places of a tenant.
#[derive(Clone, Debug)]
pub struct Places(Arc<Semaphore>);

/// The place of a request.
#[derive(Debug)]
pub struct Place {
    /// Held until it is dropped.
    _permit: OwnedSemaphorePermit,
}

impl Places {
    /// So many.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))))
    }

    /// Takes one.
    ///
    /// # Errors
    /// If none is left.
    pub fn take(&self) -> Result<Place, Failure> {
        let place = Arc::clone(&self.0).try_acquire_owned();
        place.map(|permit| Place { _permit: permit }).map_err(|_| {
            Failure::Busy(
                "this tenant has as many requests in progress as it may: try again later"
                    .to_owned(),
            )
        })
    }
}

impl Place {
    /// Keeps it until the answer is sent.
    pub fn until_sent(self, response: Response) -> Response {
        response.map(|body| Body::new(Placed { body, _place: self }))
    }
}

/// A body, and the place of its request.
struct Placed {
    body: Body,
    _place: Place,
}

impl HttpBody for Placed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_place_is_free_once_the_answer_is_sent() {
        let places = Places::new(1);
        let place = places.take().expect("it is free");
        assert!(places.take().is_err());
        let response = place.until_sent("text".into_response());
        assert!(places.take().is_err());
        let body = response.into_body();
        assert_eq!(body.size_hint().exact(), Some(4));
        let bytes = body.collect().await.expect("a body").to_bytes();
        assert_eq!(&bytes[..], b"text");
        assert!(places.take().is_ok());
    }
}
