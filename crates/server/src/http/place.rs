//! How many requests of one tenant are in progress, so that other tenants find connections.

use std::sync::Arc;

use axum::response::Response;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::budget::keeping;
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
