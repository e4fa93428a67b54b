//! Limits the concurrent requests of a tenant, so that other tenants get connections.

use std::sync::Arc;

use axum::http::Extensions;
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::keeping::keep_until_sent;
use super::unused::{Connection, Used};
use crate::failure::Failure;

/// The request slots of a tenant.
#[derive(Clone, Debug)]
pub struct RequestSlots(Arc<Semaphore>);

/// The slot of an active request.
#[derive(Debug)]
pub struct RequestSlot {
    /// Released when the slot is dropped.
    _permit: OwnedSemaphorePermit,
    /// Marks the connection as used.
    _used: Option<Used>,
}

impl RequestSlots {
    /// Creates this number of slots.
    pub fn new(count: usize) -> Self {
        Self(Arc::new(Semaphore::new(count.min(Semaphore::MAX_PERMITS))))
    }

    /// Takes a slot for a request.
    ///
    /// # Errors
    /// Returns an error if no slot is free.
    pub fn take(&self, request: &Extensions) -> Result<RequestSlot, Failure> {
        let permit = Arc::clone(&self.0).try_acquire_owned().map_err(|_| {
            Failure::Busy("this tenant has too many concurrent requests: retry later".to_owned())
        })?;
        let connection = request.get::<Arc<Connection>>();
        Ok(RequestSlot {
            _permit: permit,
            _used: connection.map(Connection::used),
        })
    }
}

impl RequestSlot {
    /// Keeps the slot until the response is sent.
    pub fn until_sent(self, response: Response) -> Response {
        response.map(|body| keep_until_sent(body, self))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::HttpBody;
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn slot_is_free_once_the_response_is_sent() {
        let slots = RequestSlots::new(1);
        let take = || slots.take(&Extensions::new());
        let slot = take().expect("it is free");
        assert!(take().is_err());
        let response = slot.until_sent("text".into_response());
        assert!(take().is_err());
        let body = response.into_body();
        assert_eq!(body.size_hint().exact(), Some(4));
        let bytes = body.collect().await.expect("a body").to_bytes();
        assert_eq!(&bytes[..], b"text");
        // A connection drops the bytes once they are written.
        drop(bytes);
        assert!(take().is_ok());
    }
}
