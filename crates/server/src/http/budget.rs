//! The memory budget of request bodies and responses.

use std::io::{self, Write};
use std::sync::Arc;

use axum::body::Body;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::keeping::keep_until_sent;
use crate::failure::Failure;

/// The unit in which memory is reserved.
const KIB: u64 = 1 << 10;

/// A memory budget: of all tenants together, or of one tenant within it.
#[derive(Clone, Debug)]
pub struct Budget(Vec<Pool>);

/// A pool of memory permits, one per KiB, and its capacity.
#[derive(Clone, Debug)]
struct Pool {
    free: Arc<Semaphore>,
    capacity: u64,
}

/// A reservation in a budget, which is released when this is dropped.
#[derive(Debug)]
pub struct Held {
    /// The budget in which memory is reserved.
    pub budget: Budget,
    /// The permits of each pool that the reservation counts in.
    permits: Vec<OwnedSemaphorePermit>,
}

fn pool(bytes: u64) -> Pool {
    let permits = usize::try_from(bytes / KIB).unwrap_or(usize::MAX);
    Pool {
        free: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))),
        capacity: bytes / KIB,
    }
}

impl Budget {
    /// Creates a budget.
    pub fn new(bytes: u64) -> Self {
        Self(vec![pool(bytes)])
    }

    /// Creates a sub-budget for a tenant. A tenant gets only a share, because clients decide how long they take to send
    /// and to read.
    #[must_use]
    pub fn share(&self, bytes: u64) -> Self {
        let own = [pool(bytes)];
        Self(own.into_iter().chain(self.0.iter().cloned()).collect())
    }

    /// Serializes a value as JSON. Its memory is reserved before the text is built.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn json(&self, value: &impl Serialize) -> Result<(Vec<u8>, Held), Failure> {
        let length = length_of(value)?;
        let held = self.hold(length)?;
        let mut text = Vec::with_capacity(usize::try_from(length).unwrap_or_default());
        serde_json::to_writer(&mut text, value).map_err(|error| serialization_failure(&error))?;
        Ok((text, held))
    }

    /// Builds a JSON response, whose memory is reserved until it is sent. Serializing a list may take a while, so call
    /// this on a blocking thread.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn answer(&self, value: &impl Serialize) -> Result<Response, Failure> {
        let (text, held) = self.json(value)?;
        let headers = [(CONTENT_TYPE, "application/json")];
        Ok((StatusCode::OK, headers, held.into_body(Bytes::from(text))).into_response())
    }

    /// Reserves memory.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn hold(&self, bytes: u64) -> Result<Held, Failure> {
        let mut held = Held {
            budget: self.clone(),
            permits: Vec::new(),
        };
        held.grow(bytes)?;
        Ok(held)
    }
}

impl Held {
    /// Grows the reservation to `bytes`. Small reservations are free, because the number of connections limits them.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory. The reservation is unchanged then.
    pub fn grow(&mut self, bytes: u64) -> Result<(), Failure> {
        const FREE: u64 = 16 * KIB;
        let more = bytes.div_ceil(KIB).saturating_sub(self.kib());
        if bytes <= FREE || more == 0 {
            return Ok(());
        }
        let all = self.budget.0.iter();
        let capacity = all.clone().map(|pool| pool.capacity).min();
        if let Some(capacity) = capacity.filter(|capacity| bytes.div_ceil(KIB) > *capacity) {
            return Err(Failure::NeverFits {
                needed: bytes,
                most: capacity * KIB,
            });
        }
        let more = u32::try_from(more).unwrap_or(u32::MAX);
        let permits = all.map(|pool| Arc::clone(&pool.free).try_acquire_many_owned(more));
        let permits: Vec<_> = permits.collect::<Result<_, _>>().map_err(|_| {
            Failure::Busy(
                "the memory for bodies and responses of the server or of this tenant is in use: retry later"
                    .to_owned(),
            )
        })?;
        if self.permits.is_empty() {
            self.permits = permits;
        } else {
            let held = self.permits.iter_mut().zip(permits);
            held.for_each(|(held, permit)| held.merge(permit));
        }
        Ok(())
    }

    /// Grows the reservation by `more` bytes.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory. The reservation is unchanged then.
    pub fn grow_by(&mut self, more: u64) -> Result<(), Failure> {
        self.grow(self.kib() * KIB + more)
    }

    /// Returns the reserved KiB.
    fn kib(&self) -> u64 {
        let permits = self.permits.first();
        permits.map_or(0, OwnedSemaphorePermit::num_permits) as u64
    }

    /// Builds a JSON response. Releases the memory of the request, and reserves that of the response until it is sent.
    ///
    /// # Errors
    /// Returns an error if there is not enough memory.
    pub fn answer(self, value: &impl Serialize) -> Result<Response, Failure> {
        let budget = self.budget.clone();
        drop(self);
        budget.answer(value)
    }

    /// Builds a body that keeps the reservation until it is sent.
    pub fn into_body(self, bytes: Bytes) -> Body {
        keep_until_sent(Body::from(bytes), self)
    }
}

/// Returns the length in bytes of a value's JSON, without building it.
///
/// # Errors
/// Returns an error if the value cannot be serialized.
pub fn length_of(value: &impl Serialize) -> Result<u64, Failure> {
    struct Length(u64);

    impl Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut length = Length(0);
    serde_json::to_writer(&mut length, value).map_err(|error| serialization_failure(&error))?;
    Ok(length.0)
}

/// Logs a serialization error, and returns the failure for the client.
pub fn serialization_failure(error: &serde_json::Error) -> Failure {
    tracing::error!("a response cannot be serialized: {error}");
    Failure::Internal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_memory_is_unavailable_to_others() {
        let budget = Budget::new(100 * KIB);
        let held = budget.hold(80 * KIB).expect("enough memory");
        assert!(budget.hold(80 * KIB).is_err());
        assert!(budget.hold(KIB).is_ok(), "small reservations are free");
        drop(held);
        let mut held = budget.hold(KIB).expect("enough memory");
        held.grow(90 * KIB).expect("enough memory");
        assert!(matches!(budget.hold(20 * KIB), Err(Failure::Busy(_))));
        assert!(matches!(
            held.grow(101 * KIB),
            Err(Failure::NeverFits { .. })
        ));
        drop(held);
        let mut held = budget.hold(40 * KIB).expect("enough memory");
        held.grow_by(50 * KIB).expect("enough memory");
        assert!(budget.hold(20 * KIB).is_err());
        drop(held);
        assert!(budget.hold(100 * KIB).is_ok());
    }

    #[test]
    fn share_leaves_the_rest_to_others() {
        let all = Budget::new(100 * KIB);
        let (one, other) = (all.share(50 * KIB), all.share(50 * KIB));
        let held = one.hold(40 * KIB).expect("enough memory");
        assert!(matches!(one.hold(20 * KIB), Err(Failure::Busy(_))));
        // This reservation could never succeed.
        assert!(matches!(one.hold(60 * KIB), Err(Failure::NeverFits { .. })));
        let mut others = other.hold(30 * KIB).expect("enough memory");
        others.grow(50 * KIB).expect("enough memory");
        assert!(others.grow(60 * KIB).is_err());
        assert!(all.hold(20 * KIB).is_err());
        drop((held, others));
        assert!(all.hold(100 * KIB).is_ok());
    }

    #[test]
    fn json_memory_is_reserved_before_it_is_built() {
        struct Once<'a>(&'a Budget, std::cell::Cell<u32>);

        impl Serialize for Once<'_> {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                self.1.set(self.1.get() + 1);
                assert_eq!(self.0.hold(70 * KIB).is_err(), self.1.get() == 2);
                serializer.serialize_str(&"x".repeat(50 << 10))
            }
        }

        let budget = Budget::new(100 * KIB);
        let made = budget.json(&Once(&budget, std::cell::Cell::new(0)));
        let (text, _held) = made.expect("there is room");
        assert_eq!(text.len(), (50 << 10) + 2);
    }
}
