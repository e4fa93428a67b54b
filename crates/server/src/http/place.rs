//! How many requests of one tenant are in progress, so that other tenants find connections.

use std::sync::Arc;

use axum::http::Extensions;
use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::keeping::keeping;
use super::unused::{Connection, Used};
use crate::failure::Failure;

/// The places of a tenant.
#[derive(Clone, Debug)]
pub struct Places(Arc<Semaphore>);

/// The place of a request.
#[derive(Debug)]
pub struct Place {
    /// Held until it is dropped.
    _permit: OwnedSemaphorePermit,
    /// Its connection is used.
    _used: Option<Used>,
}

impl Places {
    /// So many.
    pub fn new(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))))
    }

    /// Takes one for a request.
    ///
    /// # Errors
    /// If none is left.
    pub fn take(&self, request: &Extensions) -> Result<Place, Failure> {
        let permit = Arc::clone(&self.0).try_acquire_owned().map_err(|_| {
            Failure::Busy(
                "this tenant has as many requests in progress as it may: try again later"
                    .to_owned(),
            )
        })?;
        let connection = request.get::<Arc<Connection>>();
        Ok(Place {
            _permit: permit,
            _used: connection.map(Connection::used),
        })
    }
}

impl Place {
    /// Keeps it until the answer is sent.
    pub fn until_sent(self, response: Response) -> Response {
        response.map(|body| keeping(body, self))
    }
}

#[cfg(test)]
mod tests {
    use axum::body::HttpBody;
    use axum::response::IntoResponse;
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn a_place_is_free_once_the_answer_is_sent() {
        let places = Places::new(1);
        let take = || places.take(&Extensions::new());
        let place = take().expect("it is free");
        assert!(take().is_err());
        let response = place.until_sent("text".into_response());
        assert!(take().is_err());
        let body = response.into_body();
        assert_eq!(body.size_hint().exact(), Some(4));
        let bytes = body.collect().await.expect("a body").to_bytes();
        assert_eq!(&bytes[..], b"text");
        // A connection drops them when it has written them.
        drop(bytes);
        assert!(take().is_ok());
    }
}
